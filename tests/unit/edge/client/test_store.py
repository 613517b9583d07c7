"""What every store promises, on disk and in memory: whole batches, and everything found again (M2, G8)."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edge.client.memory_store import MemoryStore
from edge.client.sqlite_store import SqliteStore
from edge.client.store import Batch, Recovered, SessionRow, Store, StoredMessage, WaitingRow

CLIENT = "van-7"


class Reopened(Protocol):
    """A store and how a later process finds it."""

    def __call__(self, store: Store | None) -> Store: ...


def on_disk(path: Path) -> Reopened:
    def reopen(store: Store | None) -> Store:
        if store is not None:
            store.close()
        return SqliteStore(path / "outbox.sqlite", CLIENT)

    return reopen


def in_memory(path: Path) -> Reopened:
    return lambda store: MemoryStore(CLIENT) if store is None else copy.deepcopy(store)


both = pytest.mark.parametrize("kind", [on_disk, in_memory])


def message(sequence: int, **more: Any) -> StoredMessage:
    fields: dict[str, Any] = {
        "sequence": sequence, "topic": "t", "payload": b"%d" % sequence, "qos": 1, "retain": False,
        "properties": None, "expires_s": 1000.0 + sequence, "size": 10,
    }  # fmt: skip
    return StoredMessage(**(fields | more))


def added(*messages: StoredMessage) -> Batch:
    return Batch(added={one.sequence: one for one in messages})


@both
def test_a_new_store_is_empty(tmp_path: Path, kind: Callable[[Path], Reopened]) -> None:
    store = kind(tmp_path)(None)
    found = store.recover()
    assert found == Recovered(SessionRow(CLIENT), [], [], [], 0, 0, 0, found.incarnation)
    assert 0 <= found.incarnation < 2**63
    assert store.recover().incarnation == found.incarnation
    assert store.waiting(0, 10, 10) == []
    assert store.next_expiry() is None
    store.close()


@both
def test_everything_is_found_again(tmp_path: Path, kind: Callable[[Path], Reopened]) -> None:
    reopen = kind(tmp_path)
    store = reopen(None)
    properties = {"user_property": [("b", "1"), ("a", "2")], "correlation_data": b"\x00\xff", "content_type": "x/y"}
    store.commit(added(message(1, properties=properties, retain=True), *(message(n, qos=2) for n in range(2, 6))))
    store.commit(Batch(assigned={2: 12, 3: 13, 4: 14}))
    store.commit(Batch(released={3: 16, 2: 0}, inbound={7: True, 9: True}))
    session = SessionRow(CLIENT, True, 14, 5, 1.5, 2.5)
    store.commit(Batch(removed=[4], inbound={7: False}, open_ids={9: True, 8: True}, session=session))
    store = reopen(store)
    found = store.recover()
    assert found.in_flight == [message(2, qos=2, packet_id=12), message(3, qos=2, packet_id=13)]
    assert found.released == [(3, 16), (2, 0)]  # in the order of PUBREC [MQTT-4.6.0-4]
    assert found.accepted == [9]
    assert found.open_ids == [9, 8]
    assert found.session == session
    assert (found.waiting, found.messages, found.size) == (2, 4, 40)
    assert store.waiting(0, 10, 100) == [message(1, properties=properties, retain=True), message(5, qos=2)]
    store.close()


@both
def test_windows_of_what_waits(tmp_path: Path, kind: Callable[[Path], Reopened]) -> None:
    store = kind(tmp_path)(None)
    store.commit(added(*(message(n, size=100) for n in range(1, 8))))
    store.commit(Batch(assigned={2: 1}, removed=[3]))
    assert [one.sequence for one in store.waiting(0, 3, 1000)] == [1, 4, 5]
    assert [one.sequence for one in store.waiting(4, 10, 250)] == [5, 6]
    assert [one.sequence for one in store.waiting(5, 10, 1)] == [6], "the first one, however large"
    assert store.expired(1004.0) == [WaitingRow(n, "t", 1, 100) for n in (1, 4)]
    assert store.next_expiry() == 1001.0
    store.close()


@both
def test_added_and_ended_in_one_batch(tmp_path: Path, kind: Callable[[Path], Reopened]) -> None:
    store = kind(tmp_path)(None)
    store.commit(Batch(added={1: message(1), 2: message(2)}, assigned={1: 5, 2: 6}, released={1: 0}, removed=[1]))
    found = store.recover()
    assert [one.packet_id for one in found.in_flight] == [6]
    assert found.released == []
    store.close()


def batches() -> st.SearchStrategy[list[Batch]]:
    sequences = st.integers(1, 12)
    return st.lists(
        st.builds(
            lambda *changes: changes,
            st.integers(0, 3), st.sets(sequences, max_size=3), st.sets(sequences, max_size=2),
            st.sets(sequences, max_size=2), st.dictionaries(st.integers(1, 5), st.booleans(), max_size=3),
            st.dictionaries(st.integers(1, 5), st.booleans(), max_size=3), st.booleans(),
        ),
        max_size=8,
    ).map(possible)  # fmt: skip


def possible(drawn: list[Any]) -> list[Batch]:
    """Batches in which only messages that exist change, each as its exchange allows."""
    result, last, alive, sent, released_before = [], 0, set[int](), set[int](), set[int]()
    for fresh, assigned, released, removed, inbound, open_ids, is_taken_over in drawn:
        new = range(last + 1, last + 1 + fresh)
        last += fresh
        alive |= set(new)
        assigned = (assigned & alive) - sent
        sent |= assigned
        released = (released & sent & alive) - released_before
        released_before |= released
        removed &= alive
        alive -= removed
        result.append(
            Batch(
                {n: message(n) for n in new},
                {n: 100 + n for n in sorted(assigned)},
                dict.fromkeys(sorted(released), 0),
                sorted(removed),
                inbound,
                open_ids,
                SessionRow(CLIENT, True, last, last, float(last), 1.0, is_taken_over),
            )
        )
    return result


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25, deadline=None)
@given(done=batches(), window=st.integers(1, 5))
def test_the_twins_agree(tmp_path_factory: pytest.TempPathFactory, done: list[Batch], window: int) -> None:
    """Whatever was committed, and after every restart."""
    reopen = on_disk(tmp_path_factory.mktemp("twin"))
    disk, memory = reopen(None), MemoryStore(CLIENT)
    for batch in done:
        disk.commit(batch)
        memory.commit(copy.deepcopy(batch))
        disk = reopen(disk)
        found, twin = disk.recover(), memory.recover()
        assert found == msgspec.structs.replace(twin, incarnation=found.incarnation)
        assert disk.waiting(0, window, 35) == memory.waiting(0, window, 35)
        assert disk.expired(1005.0) == memory.expired(1005.0)
        assert disk.next_expiry() == memory.next_expiry()
    disk.close()
