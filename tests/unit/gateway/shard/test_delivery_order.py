"""The order of instructions and direct deliveries, without any home around it (R8, M14)."""

from typing import NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.memory_bus import MemoryRecord
from gateway.record import Record
from gateway.shard.checkpoint import CATCH_UP, CatchUpPosition
from gateway.shard.delivery_order import DeliveryOrder
from gateway.shard.ingress_record import IngressRecord
from gateway.shard.messages import Message, PendingMessage
from gateway.shard.shard import Shard
from schemas.envelope import EVERYONE, ROUTED, Meta, ingress_headers

PARTITIONS = 2


class Sent(NamedTuple):
    """A message on `ingress`. Of a session's subscriptions it matches an `old` one, a `new` one, both, or none."""

    partition: int
    offset: int
    old: bool
    new: bool

    @property
    def place(self) -> tuple[int, int]:
        return self.partition, self.offset


class Home:
    """Applies both ways to one session as EgressConsumer and DirectDeliveries do. `got` are places in order,
    `finished` those of earlier lives."""

    def __init__(self, ingress: dict[tuple[int, int], Sent], egress: list[tuple[str, Sent]], shard: Shard) -> None:
        self._ingress = ingress
        self._egress = egress
        self.shard = shard
        self.order = shard.order
        self.got: list[tuple[int, int]] = []
        self.finished: set[tuple[int, int]] = set()

    def apply_next(self) -> bool:
        """The next record of `egress`; False if there is none."""
        position = self.shard.position
        if position == len(self._egress):
            return False
        record = MemoryRecord(("egress", 0), b"", b"", None)
        record.stored_at(position, 0)
        self.shard.received(position)
        place = self._egress[position][1].place
        if self.order.must_park(*place):
            self.order.park(*place, record)
        else:
            self._apply(record)
        return True

    def read_next(self, partition: int) -> bool:
        """The next record of a partition of `ingress`; False if there is none."""
        offset = self.order.read_to[partition]
        if (partition, offset) not in self._ingress:
            return False
        record = MemoryRecord(("ingress", partition), b"", b"", None)
        record.stored_at(offset, 0)
        assert self.order.is_next(partition, offset)
        if partition in self.order.waiting or not self._pass(partition, offset):
            self.order.wait(IngressRecord(record))
        return True

    def reconsider(self) -> bool:
        """Applies what waits no more; whether there was any."""
        done = False
        for record in self.order.unparked():
            self._apply(record)
            done = True
        for partition, waiting in list(self.order.waiting.items()):
            while waiting.items and self._pass(partition, waiting.first_offset):
                done = True
        return done

    def acknowledge(self, number: int) -> None:
        """One of the messages that wait for the session is finished."""
        live = list(self.shard.live.values())
        if live:
            self.shard.release(live[number % len(live)])

    def _apply(self, record: Record) -> None:
        scope, sent = self._egress[record.offset()]
        shard, is_reread = self.shard, record.offset() in self.shard.unfinished
        if record.offset() < shard.recovered_to and not is_reread:
            return
        if is_reread:
            shard.take_unfinished(record.offset())
        elif self.order.copies.accept(scope, *sent.place) != "first":
            return
        left = self.order.take_left(*sent.place)
        if sent.old:
            assert not left or (left == ["session"] and sent.new)
            self.got.append(sent.place)
            message = Message("", "", "", b"", 1, False, None, b"", *sent.place, 0)
            shard.hold(PendingMessage(message, 0, record.offset(), 0.0, [], left=left))

    def _pass(self, partition: int, offset: int) -> bool:
        sent, order = self._ingress[partition, offset], self.order
        is_direct = sent.new and not sent.old and offset >= order.direct_from[partition]
        if is_direct and order.must_wait(partition, offset, self.shard.position):
            return False
        if sent.old:
            order.expect(partition, offset)
            if sent.new and offset >= order.direct_from[partition]:
                order.leave(partition, offset, ["session"])
        if is_direct:
            self.got.append(sent.place)
        order.passed(partition, offset)
        return True


messages = st.lists(st.tuples(st.integers(0, PARTITIONS - 1), st.booleans(), st.booleans()), max_size=16)
steps = st.lists(
    st.tuples(st.sampled_from(["egress", "ingress", "reconsider", "acknowledge"]), st.integers(0, 5)), max_size=40
)


def ingress_of(drawn: list[tuple[int, bool, bool]]) -> dict[tuple[int, int], Sent]:
    ends = dict.fromkeys(range(PARTITIONS), 0)
    found = {}
    for partition, old, new in drawn:
        sent = Sent(partition, ends[partition], old, new)
        found[sent.place] = sent
        ends[partition] += 1
    return found


def egress_of(ingress: dict[tuple[int, int], Sent], chance: st.DataObject) -> list[tuple[str, Sent]]:
    """What two routers write: each in the order of a partition, one of them perhaps with stale routes, or twice."""
    runs = [("active", ROUTED), ("backup", chance.draw(st.sampled_from([ROUTED, EVERYONE])))]
    if chance.draw(st.booleans()):
        runs.append(("active again", ROUTED))
    waiting = [
        [(scope, sent) for sent in ingress.values() if sent.partition == p and (sent.old or scope == EVERYONE)]
        for _, scope in runs
        for p in range(PARTITIONS)
    ]
    written = []
    while any(waiting):
        written.append(chance.draw(st.sampled_from([queue for queue in waiting if queue])).pop(0))
    return written


def run(home: Home, drawn: list[tuple[str, int]]) -> None:
    for step, number in drawn:
        if step == "egress":
            home.apply_next()
        elif step == "ingress":
            home.read_next(number % PARTITIONS)
        elif step == "reconsider":
            home.reconsider()
        else:
            home.acknowledge(number)


def run_to_the_end(home: Home) -> None:
    while any([home.apply_next(), *map(home.read_next, range(PARTITIONS)), home.reconsider()]):
        pass
    assert not home.order.parked, "nobody waits in a circle"
    assert not home.order.waiting
    assert not home.order.left


def by_partition(places: list[tuple[int, int]]) -> list[list[int]]:
    return [[offset for partition, offset in places if partition == p] for p in range(PARTITIONS)]


@given(st.data())
def test_any_interleaving_gives_each_message_once_and_each_partition_in_order(chance: st.DataObject) -> None:
    """R8, M14: also for messages before the subscription, which come by instruction only."""
    ingress = ingress_of(chance.draw(messages))
    home = Home(ingress, egress_of(ingress, chance), Shard(0))
    direct_from = {p: chance.draw(st.integers(0, 3)) for p in range(PARTITIONS)}
    home.order.begin(dict.fromkeys(range(PARTITIONS), 0), direct_from)
    run(home, chance.draw(steps))
    run_to_the_end(home)
    wanted = [s.place for s in ingress.values() if s.old or (s.new and s.offset >= direct_from[s.partition])]
    assert by_partition(home.got) == by_partition(wanted)


@given(st.data())
def test_a_restart_at_any_moment_goes_on_in_order(chance: st.DataObject) -> None:
    """R8: what was not finished at the checkpoint comes again, in order with what had not come."""
    ingress = ingress_of(chance.draw(messages))
    egress = egress_of(ingress, chance)
    home = Home(ingress, egress, Shard(0))
    start = dict.fromkeys(range(PARTITIONS), 0)
    home.order.begin(start, start)
    for _ in range(2):
        run(home, chance.draw(steps))
        saved, passed_to = home.shard.snapshot(), dict(home.order.passed_to or {})
        unfinished = {(held.message.partition, held.message.offset) for held in home.shard.live.values()}
        again = {egress[position][1].place for position in home.shard.unfinished}
        finished = (home.finished | set(home.got)) - unfinished - again
        run(home, chance.draw(steps))
        home = Home(ingress, egress, Shard(0))
        home.shard.restore(saved, {}, {})
        home.order.begin(passed_to, start)
        home.finished = finished
    run_to_the_end(home)
    wanted = [s.place for s in ingress.values() if (s.old or s.new) and s.place not in home.finished]
    assert by_partition(home.got) == by_partition(wanted)


def parked_record(position: int) -> Record:
    record = MemoryRecord(("egress", 0), b"", b"x", None)
    record.stored_at(position, 0)
    return record


def test_an_instruction_waits_for_its_message_and_those_before_it() -> None:
    """Rule 1."""
    order = DeliveryOrder()
    assert not order.must_park(0, 5), "nothing is read"
    order.begin({0: 3}, {0: 4})
    assert not order.must_park(0, 3), "no direct delivery comes before it"
    assert order.must_park(0, 4)
    order.park(0, 4, parked_record(0))
    assert order.must_park(0, 3), "it keeps its place"
    assert order.instructed_to(0) == 5
    assert list(order.unparked()) == []
    order.passed(0, 4)
    assert [record.offset() for record in order.unparked()] == [0]
    assert not order.must_park(0, 4)
    assert order.must_park(0, 5)
    order.end()
    assert not order.must_park(0, 5)


def test_a_direct_delivery_waits_for_instructions_of_earlier_messages() -> None:
    """Rule 2."""
    order = DeliveryOrder()
    order.begin({0: 0, 1: 0}, {0: 0, 1: 0})
    order.expect(0, 3)
    order.passed(0, 3)
    assert order.must_wait(0, 4, 0)
    assert not order.must_wait(1, 4, 0), "partitions do not wait for one another"
    order.park(0, 5, parked_record(0))
    assert not order.must_wait(0, 4, 0), "routers emit in order: none is missing before it"
    assert order.must_wait(0, 6, 0)
    order.discard(0, 9)
    assert order.instructed_to(0) == 10


@pytest.mark.parametrize("is_live", [False, True])
def test_a_restart_does_not_wait_in_a_circle(is_live: bool) -> None:
    """What was parked at the checkpoint is parked again; direct deliveries before it do not wait for it."""
    before = Shard(0)
    before.order.begin({0: 5, 1: 5}, {0: 0, 1: 0})
    before.received(0)
    before.order.park(0, 10, parked_record(0))
    before.received(1)
    if is_live:
        before.hold(PendingMessage(Message("", "", "", b"", 1, False, None, b"", 1, 3, 0), 0, 1, 0.0, []))
    after = Shard(0)
    assert after.restore(before.snapshot(), {}, {}) == 0
    after.order.begin({0: 5, 1: 5}, {0: 0, 1: 0})
    after.received(0)
    after.order.park(0, 10, parked_record(0))
    after.received(1)
    assert not after.order.must_wait(0, 5, after.position)
    assert not after.order.must_wait(1, 5, after.position)
    assert after.order.must_wait(0, 11, after.position)


def test_a_restart_expects_what_was_passed_and_still_parked() -> None:
    """R8: a checkpoint between passing a message and applying its instruction."""
    before = Shard(0)
    before.order.begin({0: 5}, {0: 0})
    before.received(0)
    before.order.park(0, 5, parked_record(0))
    before.order.expect(0, 5)
    before.order.passed(0, 5)
    after = Shard(0)
    after.restore(before.snapshot(), {}, {})
    after.order.begin({0: 6}, {0: 0})
    assert after.order.must_wait(0, 6, after.position)
    after.received(0)
    after.order.copies.accept(ROUTED, 0, 5)
    assert not after.order.must_wait(0, 6, after.position)


def test_positions_of_earlier_versions_are_understood() -> None:
    """The names in the spool do not change."""
    windows = [["routed", 0, 5, bytes(511) + b"\1"], ["everyone", 0, -1, bytes(512)]]
    raw = {"restart": 2, "position": 4, "windows": windows, "unfinished": [2]}
    raw |= {"copies": [], "expected": {0: 7}, "left": [[0, 7, ["session"]]]}
    shard = Shard(0)
    assert shard.restore(msgspec.msgpack.encode(raw), {}, {}) == 2
    assert shard.order.instructed_to(0) == 6
    shard.order.begin({0: 8}, {0: 0})
    assert shard.order.must_wait(0, 8, 4)
    assert shard.order.take_left(0, 7) == ["session"]
    assert msgspec.msgpack.decode(shard.snapshot()) == raw | {"left": []}
    reader = msgspec.msgpack.encode({"reading": {0: 8}, "done_ms": 9, "begun": {0: 3}})
    assert CATCH_UP == "instant"
    assert msgspec.msgpack.decode(reader, type=CatchUpPosition) == CatchUpPosition({0: 8}, 9, {0: 3})


def test_what_waits_counts_with_its_properties() -> None:
    """R9: messages without payload may be large."""
    headers = ingress_headers("id", "sender", Meta(0, "", None, 0, None), b"x" * 1_000)
    record = MemoryRecord(("ingress", 0), b"topic", None, headers)
    record.stored_at(7, 0)
    order = DeliveryOrder()
    order.begin({0: 0}, {0: 0})
    order.wait(IngressRecord(record))
    order.park(0, 7, record)
    assert 1_000 < order.waiting.bytes < 1_200
    assert order.parked.bytes == order.waiting.bytes
    order.unpark(0)
    order.passed(0, 7)
    assert (order.parked.bytes, order.waiting.bytes) == (0, 0)
