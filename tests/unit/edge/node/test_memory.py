"""What 100,000 waiting messages leave in memory, as a bound on each; a second lot adds nothing (M2, M19)."""

import gc
import tracemalloc
from collections.abc import Callable, Iterator

import pytest

from bundles.bundle import Header, Kind
from bundles.id_table import raw_id
from bundles.receipt import Role
from edge.mesh.known_receipts import OURS, InMemory, KnownReceipts
from edge.node.held_on_disk import HeldOnDisk
from edge.node.held_table import HeldTable
from edge.node.own_messages import OwnMessages
from schemas.identity import message_id_of
from tests.unit.bundles.keys import receipt

COUNT = 1_000
LAST = receipt(message_id_of("a", 7, 1), "b", Role.RECIPIENT)


class OnDisk(InMemory):
    """Takes no memory."""

    def put(self, message_id: str, encoded: bytes) -> None:
        pass


@pytest.fixture
def traced() -> Iterator[Callable[[], int]]:
    """Bytes that have been allocated since, and are there."""
    gc.collect()
    tracemalloc.start()
    yield lambda: tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()


def test_a_message_that_waits_takes_few_bytes(traced: Callable[[], int]) -> None:
    records, table, own = HeldOnDisk(), HeldTable(), OwnMessages(lambda one: message_id_of("a", 7, one))

    def wait(first: int) -> None:
        for sequence in range(first, first + COUNT):
            raw = raw_id(message_id_of("a", 7, sequence))
            header = ("a", 7, sequence, "@b", int(Kind.ENVELOPE), 1, 9_999, 1, 1)
            own.begin("b", sequence, raw)
            table[message_id_of("a", 7, sequence)] = held = records.record(raw, header, 0, 0, 8, 1.0, 1_000)
            held.reserved += 1
            held.reserved -= 1

    def leave(first: int) -> None:
        for sequence in range(first, first + COUNT):
            message_id = message_id_of("a", 7, sequence)
            assert table.pop(message_id) is not None
            assert own.end(message_id)

    wait(1)
    first = traced()
    assert first < 240 * COUNT
    leave(1)
    wait(1 + COUNT)
    leave(1 + COUNT)
    assert traced() < first
    assert (len(table), len(own)) == (0, 0)
    new = Header("a", 7, 3 * COUNT, "@b", Kind.ENVELOPE, 1, 9)
    assert own.low_water(new) == new.sequence


def test_a_receipt_takes_few_bytes_and_the_next_ones_none(traced: Callable[[], int]) -> None:
    known = KnownReceipts(COUNT, 10, OnDisk())

    def take(first: int) -> None:
        for sequence in range(first, first + COUNT):
            known._keep(raw_id(message_id_of("a", 7, sequence)), LAST.encoded, LAST.role, LAST.signer, OURS)

    take(1)
    first = traced()
    assert first < 90 * COUNT
    take(1 + COUNT)
    assert traced() < first + 10 * COUNT
    assert len(known) <= COUNT
