"""The contract of gateway.bus.Bus as tests: run against the in-memory twin and against Kafka.

A subclass gives `scenario(check)`: it runs `check(bus, received)` on a loop, with a started bus over fresh topics
(2 partitions of `ingress`), and `received` the records that came to the bus's consumer.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any

from confluent_kafka import KafkaError

from gateway.bus import Bus
from gateway.partition_reader import Read
from gateway.record import Record
from schemas.topics import LARGEST_RECORD, Topics

Check = Callable[[Bus, Topics, list[Record]], Awaitable[None]]
PATIENCE_S = 30.0


async def until(condition: Callable[[], bool]) -> None:
    """Waits for it to become true."""
    deadline = asyncio.get_running_loop().time() + PATIENCE_S
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, "it has not happened"
        await asyncio.sleep(0.01)


class Producing:
    """Sends numbered records, and notes what becomes of them."""

    def __init__(self, bus: Bus, topic: str) -> None:
        self._bus, self._topic = bus, topic
        self.done: list[tuple[int, int, int]] = []
        self.errors: list[Any] = []

    def send(self, partition: int, number: int, value: bytes | None = b"value") -> None:
        def on_done(error: Any, record: Record) -> None:
            if error is not None:
                self.errors.append(error)
            else:
                self.done.append((partition, number, record.offset()))
                assert record.timestamp()[1] > 0

        before = len(self.done)
        headers = [("first", b"%d" % number), ("second", b"")]
        self._bus.produce(self._topic, partition, b"key-%d" % number, value, headers, on_done)
        assert len(self.done) == before, "not within the call"

    async def all_done(self, count: int) -> None:
        await until(lambda: len(self.done) + len(self.errors) >= count)


class BusContract(ABC):
    """What holds for every bus."""

    applied: asyncio.Future[None] | None = None

    @abstractmethod
    def scenario(self, check: Check) -> None:
        """Runs `check` as the module says; `take` gets the records."""

    def hold(self) -> None:
        """Further batches of the bus's consumer count as not applied, until `let_go`."""
        self.applied = asyncio.get_running_loop().create_future()

    def let_go(self) -> None:
        assert self.applied is not None
        self.applied.set_result(None)
        self.applied = None

    def take(self, received: list[Record], batch: list[Record]) -> asyncio.Future[None] | None:
        """`OnRecords` of the bus."""
        received.extend(batch)
        return self.applied

    def test_records_are_stored_and_acknowledged_in_order(self) -> None:
        """Q1, R8: offsets by partition in the order of `produce`; acknowledged in that order too."""

        async def check(bus: Bus, topics: Topics, received: list[Record]) -> None:
            sent = Producing(bus, topics.ingress)
            for n in range(200):
                sent.send(n % 2, n)
            await sent.all_done(200)
            assert not sent.errors
            for partition in (0, 1):
                mine = [(number, offset) for p, number, offset in sent.done if p == partition]
                assert mine == [(2 * n + partition, n) for n in range(100)]
            assert await bus.end_offsets(topics.ingress, 2) == {0: 100, 1: 100}
            assert received == []

        self.scenario(check)

    def test_consuming_begins_where_asked_and_ends_when_told(self) -> None:
        async def check(bus: Bus, topics: Topics, received: list[Record]) -> None:
            sent = Producing(bus, topics.ingress)
            for n in range(20):
                sent.send(n % 2, n)
            await sent.all_done(20)
            await bus.assign({(topics.ingress, 0): 4, (topics.ingress, 1): -1})
            await until(lambda: len(received) >= 16)
            for n in range(20, 24):
                sent.send(n % 2, n)
            await until(lambda: len(received) >= 20)
            for partition, first in ((0, 4), (1, 0)):
                mine = [record for record in received if record.partition() == partition]
                assert [record.offset() for record in mine] == list(range(first, 12))
                assert [record.key() for record in mine] == [b"key-%d" % (2 * n + partition) for n in range(first, 12)]
            await bus.unassign(p for p in [(topics.ingress, 0)])
            sent.send(0, 24)
            sent.send(1, 25)
            await until(lambda: len(received) >= 21)
            await asyncio.sleep(0.3)
            assert [(record.partition(), record.offset()) for record in received[20:]] == [(1, 12)]
            await bus.assign({(topics.ingress, 0): 12})
            await until(lambda: len(received) >= 22)
            assert (received[-1].partition(), received[-1].offset()) == (0, 12)

        self.scenario(check)

    def test_a_partition_is_assigned_again_and_unassigned_twice(self) -> None:
        """Q7: a shard that is lost and comes back, whoever has stopped reading it meanwhile."""

        async def check(bus: Bus, topics: Topics, received: list[Record]) -> None:
            sent, place = Producing(bus, topics.ingress), (topics.ingress, 0)
            for n in range(10):
                sent.send(0, n)
            await sent.all_done(10)
            await bus.unassign(each for each in [place])
            await bus.assign({place: 8})
            await until(lambda: len(received) >= 2)
            await bus.assign({place: 5, (topics.ingress, 1): 0})
            await until(lambda: len(received) >= 7)
            assert [record.offset() for record in received] == [8, 9, *range(5, 10)]
            await bus.unassign([place])
            await bus.unassign([place, (topics.ingress, 1)])
            sent.send(0, 10)
            await sent.all_done(11)
            await bus.assign({place: 10})
            await until(lambda: len(received) >= 8)
            assert received[-1].offset() == 10

        self.scenario(check)

    def test_a_record_comes_back_as_it_was(self) -> None:
        """Headers in their order; no value is no value, and an empty one is empty; the append time is the broker's."""

        async def check(bus: Bus, topics: Topics, received: list[Record]) -> None:
            sent = Producing(bus, topics.ingress)
            await bus.assign({(topics.ingress, 0): 0})
            for n, value in enumerate((b"value", None, b"")):
                sent.send(0, n, value)
            await until(lambda: len(received) >= 3)
            assert [record.value() for record in received] == [b"value", None, b""]
            assert {record.topic() for record in received} == {topics.ingress}
            assert [record.headers() for record in received] == [
                [("first", b"%d" % n), ("second", b"")] for n in range(3)
            ]
            times = [record.timestamp() for record in received]
            assert times == sorted(times)
            assert {kind for kind, _at in times} == {2}

        self.scenario(check)

    def test_records_that_are_sent_together_are_stored_in_order(self) -> None:
        """Q1: one acknowledgement, that of the last; a tombstone has no value, and is not an empty one."""

        async def check(bus: Bus, topics: Topics, received: list[Record]) -> None:
            records = [(b"a", b"1"), (b"b", b""), (b"a", None), (b"c", b"2"), (b"b", None)]
            done: list[tuple[Any, int, int]] = []
            bus.produce_all(topics.spool, 1, records, lambda e, r: done.append((e, r.offset(), r.timestamp()[1])))
            assert done == [], "not within the call"
            await until(lambda: done != [])
            [(error, offset, at_ms)] = done
            assert (error, offset) == (None, 4)
            assert at_ms > 0
            read: list[Record] = []
            assert await bus.read(topics.spool, {1: 0}, read.append) == {1: 5}
            assert [(record.key(), record.value()) for record in read] == records

        self.scenario(check)

    def test_records_that_are_sent_together_may_have_headers(self) -> None:
        """G6: each has them, tombstones too; still in order, with one acknowledgement."""

        async def check(bus: Bus, topics: Topics, received: list[Record]) -> None:
            records = [(b"a", b"1"), (b"b", b""), (b"a", None), *((b"%d" % n, b"x") for n in range(200)), (b"b", None)]
            done: list[tuple[Any, int, int]] = []
            headers = [("epoch", b"7")]
            bus.produce_all(
                topics.spool, 1, records, lambda e, r: done.append((e, r.offset(), r.timestamp()[1])), headers
            )
            assert done == [], "not within the call"
            await until(lambda: done != [])
            [(error, offset, at_ms)] = done
            assert (error, offset) == (None, len(records) - 1)
            assert at_ms > 0
            read: list[Record] = []
            assert await bus.read(topics.spool, {1: 0}, read.append) == {1: len(records)}
            assert [(record.key(), record.value()) for record in read] == records
            assert all(record.headers() == headers for record in read)

        self.scenario(check)

    def test_what_is_too_large_is_refused_and_the_rest_is_stored(self) -> None:
        """Q1: `produce` does not raise; the refusal comes to `on_done`."""

        async def check(bus: Bus, topics: Topics, received: list[Record]) -> None:
            sent = Producing(bus, topics.ingress)
            sent.send(0, 0, b"x" * (LARGEST_RECORD + 1))
            sent.send(0, 1)
            await sent.all_done(2)
            assert [error.code() for error in sent.errors] == [KafkaError.MSG_SIZE_TOO_LARGE]
            assert sent.done == [(0, 1, 0)]

        self.scenario(check)

    def test_reading_shows_all_from_the_start_to_the_present_end(self) -> None:
        async def check(bus: Bus, topics: Topics, received: list[Record]) -> None:
            read: list[tuple[int, int]] = []

            def show(record: Record) -> None:
                read.append((record.partition(), record.offset()))

            assert await bus.read(topics.ingress, {0: 0, 1: 5}, show) == {0: 0, 1: 0}
            sent = Producing(bus, topics.ingress)
            for n in range(40):
                sent.send(n % 2, n)
            await sent.all_done(40)
            assert await bus.read(topics.ingress, {0: 0, 1: 15}, show) == {0: 20, 1: 20}
            assert sorted(read) == [(0, n) for n in range(20)] + [(1, n) for n in range(15, 20)]
            read.clear()
            assert await bus.read(topics.ingress, {1: 20}, show) == {1: 20}
            assert read == []
            assert received == []

        self.scenario(check)

    def test_a_later_read_begins_where_it_is_told_to(self) -> None:
        """Q7: whatever was read before, by the same consumer, of the same partition or another; also at once."""

        async def check(bus: Bus, topics: Topics, received: list[Record]) -> None:
            sent = Producing(bus, topics.spool)
            for n in range(60):
                sent.send(n % 3, n)
            await sent.all_done(60)

            async def read(start: dict[int, int]) -> None:
                found: list[tuple[int, int]] = []
                ends = await bus.read(topics.spool, start, lambda r: found.append((r.partition(), r.offset())))
                assert ends == dict.fromkeys(start, 20)
                assert sorted(found) == [(p, n) for p, at in sorted(start.items()) for n in range(at, 20)]

            for start in ({0: 0}, {0: 0}, {0: 13}, {1: 19, 0: 5}, {2: 0, 0: 20}, {0: 20}, {1: 0, 2: 7}):
                await read(start)
            await asyncio.gather(*(read({p: at}) for p in range(3) for at in (0, 3, 20)))
            sent.send(0, 60)
            await sent.all_done(61)
            found: list[Record] = []
            assert await bus.read(topics.spool, {0: 20}, found.append) == {0: 21}
            assert [record.offset() for record in found] == [20]

        self.scenario(check)

    def test_a_followed_topic_waits_for_nobody(self) -> None:
        """G2: its records come while a batch of the other consumer is not applied, each once and in order."""

        async def check(bus: Bus, topics: Topics, received: list[Record]) -> None:
            sent, followed = Producing(bus, topics.members), list[Record]()
            for n in range(5):
                sent.send(0, n)
            await sent.all_done(5)
            bus.follow({(topics.members, 0): 3}, followed.extend)
            await until(lambda: len(followed) >= 2)
            self.hold()
            Producing(bus, topics.ingress).send(0, 0)
            await bus.assign({(topics.ingress, 0): 0})
            await until(lambda: len(received) >= 1)
            Producing(bus, topics.ingress).send(0, 1)
            for n in range(5, 50):
                sent.send(0, n)
            await until(lambda: len(followed) >= 47)
            assert [record.offset() for record in followed] == list(range(3, 50))
            assert [record.key() for record in followed] == [b"key-%d" % n for n in range(3, 50)]
            self.let_go()
            await until(lambda: len(received) >= 2)
            assert {record.topic() for record in received} == {topics.ingress}

        self.scenario(check)

    def test_partitions_are_followed_and_left_while_it_runs(self) -> None:
        """G6: from the given offset on, each record once and in order; none once `remove` has returned."""

        async def check(bus: Bus, topics: Topics, received: list[Record]) -> None:
            sent, followed = Producing(bus, topics.ingress), list[Record]()
            for n in range(10):
                sent.send(n % 2, n)
            await sent.all_done(10)

            def offsets(partition: int) -> list[int]:
                return [record.offset() for record in followed if record.partition() == partition]

            following = bus.follow({}, followed.extend)
            await following.add({(topics.ingress, 0): 2})
            await until(lambda: offsets(0) == [2, 3, 4])
            await following.add({(topics.ingress, 1): 0})
            for n in range(10, 20):
                sent.send(n % 2, n)
            await until(lambda: len(followed) >= 18)
            assert (offsets(0), offsets(1)) == ([*range(2, 10)], [*range(10)])
            await following.remove(p for p in [(topics.ingress, 0)])
            for n in range(20, 30):
                sent.send(n % 2, n)
            await sent.all_done(30)
            await until(lambda: offsets(1) == [*range(15)])
            assert offsets(0) == [*range(2, 10)]
            await following.add({(topics.ingress, 0): 9})
            await until(lambda: offsets(0) == [*range(2, 10), *range(9, 15)])
            assert received == []

        self.scenario(check)

    def test_ends_are_told_while_batches_wait_and_whoever_asked_is_gone(self) -> None:
        """R9: what a SUBSCRIBE waits for does not wait behind messages; a question that is cancelled harms nobody."""

        async def check(bus: Bus, topics: Topics, received: list[Record]) -> None:
            sent = Producing(bus, topics.ingress)
            await bus.assign({(topics.ingress, 0): 0, (topics.ingress, 1): 0})
            self.hold()
            for n in range(40):
                sent.send(n % 2, n)
                await sent.all_done(n + 1)
            asked = [asyncio.ensure_future(bus.end_offsets(topics.ingress, 2)) for _ in range(10)]
            await asyncio.sleep(0)
            for question in asked[::2]:
                question.cancel()
            assert [await question for question in asked[1::2]] == [{0: 20, 1: 20}] * 5
            sent.send(0, 40)
            await sent.all_done(41)
            assert await bus.end_offsets(topics.ingress, 2) == {0: 21, 1: 20}
            moving = asyncio.ensure_future(bus.unassign([(topics.ingress, 1)]))
            await asyncio.sleep(0)
            moving.cancel()
            self.let_go()
            await until(lambda: sum(record.partition() == 0 for record in received) == 21)

        self.scenario(check)

    def test_a_reader_has_partitions_that_come_and_go_and_waits_for_its_user(self) -> None:
        """Q7: records once and in order, with the token of their assignment, and the end; nobody else waits."""

        async def check(bus: Bus, topics: Topics, received: list[Record]) -> None:
            sent, found = Producing(bus, topics.spool), list[tuple[int, int, int]]()
            ends: dict[tuple[int, int], int] = {}
            waits: list[asyncio.Future[None]] = []

            def take(reads: dict[tuple[str, int], Read]) -> asyncio.Future[None] | None:
                for (topic, partition), read in reads.items():
                    assert topic == topics.spool
                    found.extend((read.token, partition, record.offset()) for record in read.records)
                    ends[read.token, partition] = read.end
                return waits[0] if waits else None

            for n in range(20):
                sent.send(n % 2, n)
            await sent.all_done(20)
            reader = bus.reader(take)
            reader.assign({(topics.spool, 0): 4, (topics.spool, 2): 0}, 1)
            await until(lambda: len(found) >= 6 and len(ends) >= 2)
            assert found == [(1, 0, n) for n in range(4, 10)]
            assert ends == {(1, 0): 10, (1, 2): 0}, "also of a partition that has nothing"
            reader.assign({(topics.spool, 1): 7}, 2)
            await until(lambda: len(found) >= 9)
            assert found[6:] == [(2, 1, n) for n in range(7, 10)]
            reader.assign({(topics.spool, 0): 8}, 3)
            await until(lambda: len(found) >= 11)
            assert found[9:] == [(3, 0, 8), (3, 0, 9)]
            reader.unassign([(topics.spool, 0), (topics.spool, 3)])
            reader.assign({(topics.spool, 1): 9}, 4)
            await until(lambda: found[-1] == (4, 1, 9))
            waits.append(asyncio.get_running_loop().create_future())
            sent.send(0, 20)
            sent.send(1, 21)
            await until(lambda: found[-1] == (4, 1, 10))
            for n in range(3):
                await asyncio.sleep(0.3)
                sent.send(1, 22 + n)
            await sent.all_done(25)
            assert await bus.end_offsets(topics.spool, 2) == {0: 11, 1: 14}
            waits.pop().set_result(None)
            await until(lambda: found[-1] == (4, 1, 13))
            assert [each for each in found[12:] if each[0] == 4] == [(4, 1, n) for n in range(10, 14)]
            assert not [each for each in found[12:] if each[0] != 4]
            reader.unassign([(topics.spool, 1)])
            for n in range(5):
                sent.send(1, 25 + n)
            await sent.all_done(30)
            reader.assign({(topics.spool, 1): 19}, 6)
            await until(lambda: (6, 1) in ends)
            assert ends[6, 1] == 19, "where it ends now, not where it ended when it was read before"
            reader.assign({(topics.spool, 0): 1_000}, 5)
            await until(lambda: ends.get((5, 0)) == 11 and (5, 0, 10) in found)
            assert [each for each in found if each[0] == 5] == [(5, 0, n) for n in range(11)], "from the beginning"
            await reader.stop(10)
            sent.send(0, 99)
            await sent.all_done(26)
            await asyncio.sleep(0.3)
            assert found[-1] == (5, 0, 10)

        self.scenario(check)
