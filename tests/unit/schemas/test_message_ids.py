"""Message ids: new ones, and those derived from what a sender calls its message."""

import re
import time
from uuid import RFC_4122, UUID

from hypothesis import assume, example, given
from hypothesis import strategies as st

from gateway.shard.messages import message_of
from pipelines.ledger import history
from schemas.envelope import Meta, ingress_headers
from schemas.identity import derived_message_id, new_message_id

sessions = st.text(max_size=30)
sequences = st.integers() | st.text(max_size=30)
pairs = st.tuples(sessions, sequences)


@given(pairs)
def test_the_same_message_has_the_same_id(pair: tuple[str, int | str]) -> None:
    assert derived_message_id(*pair) == derived_message_id(*pair)


def test_an_id_is_the_same_in_every_release() -> None:
    """Else a message that is repeated after an upgrade would be another one."""
    assert derived_message_id("session-1", 7) == "e188689e-3833-8e70-970f-80d4a5a05096"
    assert derived_message_id("session-1", "7") == "eccf193a-be4f-8e33-a7b9-1cc23452848a"
    assert derived_message_id("é", "key") == "25b87a9e-3f76-83a4-a554-bed9f37bc505"


@example(("ab", ""), ("a", "b"))
@example(("a", "b1"), ("ab", 1))
@example(("a", 1), ("a", "1"))
@example(("a", "n1"), ("an", 1))
@example(("1:a", "b"), ("a", "b"))
@example(("a", "b\0"), ("a\0", "b"))
@example(("", "2:ab"), ("ab", ""))
@example(("a", -1), ("a-", 1))
@given(pairs, pairs)
def test_different_messages_have_different_ids(one: tuple[str, int | str], other: tuple[str, int | str]) -> None:
    """However session and sequence are cut out of the same letters."""
    assume(one != other)
    assert derived_message_id(*one) != derived_message_id(*other)


@given(sessions, st.text(max_size=20), st.text(max_size=20))
def test_moving_letters_between_session_and_sequence_gives_another_id(session: str, moved: str, rest: str) -> None:
    assume(moved)
    assert derived_message_id(session + moved, rest) != derived_message_id(session, moved + rest)


def test_new_ids_are_unique_and_in_the_order_of_time() -> None:
    """RFC 9562, 5.7: the first 48 bits are milliseconds."""
    ids, times_ms = [], []
    while len(ids) < 3_000 or len(set(times_ms)) < 3:
        ids.append(new_message_id())
        times_ms.append(time.time_ns() // 1_000_000)
    assert len(set(ids)) == len(ids)
    for message_id, before, after in zip(ids[1:], times_ms, times_ms[1:], strict=False):
        assert before <= UUID(message_id).int >> 80 <= after


@given(pairs)
def test_it_is_valid_wherever_a_new_one_is(pair: tuple[str, int | str]) -> None:
    """RFC 9562, 4.1, 4.2, 5.8; the ledger's check; the envelope there and back."""
    new, derived = new_message_id(), derived_message_id(*pair)
    assert [UUID(new).version, UUID(derived).version] == [7, 8]
    for message_id in (new, derived):
        assert UUID(message_id).variant == RFC_4122
        assert str(UUID(message_id)) == message_id
        assert re.search(history.UUID, message_id)
        headers = ingress_headers(message_id, "sender", Meta(1, "", None, 0, None), b"\0")
        assert message_of("a/b", b"", headers, (0, 0, 0)).id == message_id
