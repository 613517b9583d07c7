"""Q13: when a receipt is due, whatever the order of events, and however often each comes."""

from collections.abc import Mapping, Sequence
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.ledger.receipts import MOST_SEEN, ReceiptState
from schemas.receipts import KINDS, ReceiptKind

Event = Mapping[str, Any]


def asked(kind: ReceiptKind) -> Event:
    receipt = {"kind": kind, "to": "van", "properties": "AA=="}
    return {"kind": "asked", "receipt": receipt, "deliveries": [], "read_by": None}


def delivered(*clients: str, outcome: str = "delivered") -> Event:
    deliveries = [{"client": client, "outcome": outcome} for client in clients]
    return {"kind": "outcome", "receipt": None, "deliveries": deliveries, "read_by": None}


def read(client: str) -> Event:
    return {"kind": "read", "receipt": None, "deliveries": [], "read_by": client}


END: Event = {"kind": "relinquish", "receipt": None, "deliveries": None, "read_by": None}
"""With it the message is complete."""


def told(batches: Sequence[Sequence[Event]]) -> list[tuple[dict[str, int], bool]]:
    """The receipts that come of these batches: outcomes, and whether the message was complete. The states between are
    stored."""
    found, stored = [], None
    for events in batches:
        state = ReceiptState.decode(stored).after(events, is_complete=END in events)
        if state.is_due:
            found.append((state.outcomes, state.is_complete))
        stored = state.settled().encode()
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_one_receipt_comes_in_whatever_order_the_events_come(kind: ReceiptKind) -> None:
    """Its recipient may have the message before the platform knows that a receipt is asked for. Nothing is delivered
    behind the end."""
    for events in permutations([asked(kind), delivered("a"), END]):
        if events.index(delivered("a")) < events.index(END):
            assert len(told([[event] for event in events])) == (0 if kind in ("failed", "read") else 1)


def test_the_first_recipient_is_enough() -> None:
    assert told([[asked("delivered"), delivered("a", "b")], [delivered("c")], [END]]) == [({"delivered": 2}, False)]


def test_a_message_that_nobody_gets_says_so() -> None:
    """Also if it expires for all."""
    assert told([[asked("delivered")], [delivered("a", outcome="expired"), END]]) == [({"expired": 1}, True)]
    assert told([[asked("delivered"), END]]) == [({}, True)]


def test_the_last_recipient_completes_it() -> None:
    batches = [[asked("completed"), delivered("a")], [delivered("b", outcome="dropped")], [delivered("c"), END], [END]]
    assert told(batches) == [({"delivered": 2, "dropped": 1}, True)]


def test_only_a_message_that_fails_is_told_as_failed() -> None:
    assert told([[asked("failed"), delivered("a", outcome="sent"), END], [END]]) == []
    assert told([[asked("failed")], [delivered("a", outcome="ended"), END], [END]]) == [({"ended": 1}, True)]


def test_a_message_is_read_once_a_recipient_says_so() -> None:
    """Whatever came first; long after the message is complete, too."""
    for events in permutations([asked("read"), delivered("a"), read("a")]):
        assert len(told([[event] for event in events])) == 1
    assert told([[asked("read"), delivered("a", "b"), END], [read("b")], [read("a")]]) == [({"delivered": 2}, True)]


def test_only_those_who_have_got_a_message_can_have_read_it() -> None:
    batches = [[asked("read")], [read("x"), read("b")], [delivered("a")], [delivered("b", outcome="expired"), END]]
    assert told(batches) == []
    assert told([*batches, [read("a")]]) == [({"delivered": 1, "expired": 1}, True)]


def test_a_message_that_nobody_gets_is_not_read() -> None:
    assert told([[asked("read"), read("x")], [delivered("a", outcome="ended"), END]]) == [({"ended": 1}, True)]


def test_a_message_without_a_receipt_tells_nothing() -> None:
    assert told([[delivered("a")], [END]]) == []


@given(st.lists(st.sampled_from("abcdef"), min_size=1), st.randoms())
def test_a_recipient_that_is_reported_again_counts_once(clients: list[str], random: Any) -> None:
    batches = [[delivered(*random.sample(clients, random.randint(0, len(clients))))] for _ in range(3)]
    [(outcomes, _)] = told([[asked("completed")], *batches, [delivered(*clients)], [END]])
    assert outcomes == {"delivered": len(set(clients))}


def test_a_state_stays_small_however_many_recipients_there_are() -> None:
    names = [f"client-{number}" for number in range(3 * MOST_SEEN)]
    state = ReceiptState().after([asked("completed"), delivered(*names)], is_complete=False)
    assert state.outcomes == {"delivered": len(names)}
    assert len(state.encode()) < 9 * MOST_SEEN
    assert len(state.after([END], is_complete=True).settled().encode()) < 20
