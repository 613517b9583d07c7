"""The contract of gateway.bus.Bus as tests: what is produced, and what its consumer brings."""

import asyncio
from typing import Any

from confluent_kafka import KafkaError

from gateway.bus import Bus
from gateway.record import Record
from schemas.topics import LARGEST_RECORD, Topics
from tests.unit.gateway.bus_scenarios import BusScenarios, Producing, until


class BusContract(BusScenarios):
    """What holds for every bus."""

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
