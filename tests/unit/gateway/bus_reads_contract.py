"""The contract of gateway.bus.Bus as tests: what is read, followed and asked for beside its consumer."""

import asyncio

from gateway.bus import Bus
from gateway.partition_reader import Read
from gateway.record import Record
from schemas.topics import Topics
from tests.unit.gateway.bus_scenarios import BusScenarios, Producing, until


class BusReadsContract(BusScenarios):
    """What holds for every bus."""

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

    def test_it_says_where_the_first_record_stands(self) -> None:
        async def check(bus: Bus, topics: Topics, received: list[Record]) -> None:
            sent = Producing(bus, topics.ingress)
            for n in range(10):
                sent.send(0, n)
            await sent.all_done(10)
            for start, first in (({0: 0, 1: 0}, {0: 0, 1: 0}), ({0: 7}, {0: 7}), ({0: 10, 1: 0}, {0: 10, 1: 0})):
                assert await bus.first_offsets(topics.ingress, start) == first
            await self.delete(topics.ingress, 0, 4)
            assert await bus.first_offsets(topics.ingress, {0: 0}) == {0: 4}
            assert await bus.first_offsets(topics.ingress, {0: 5}) == {0: 5}
            await self.delete(topics.ingress, 0, 10)
            assert await bus.first_offsets(topics.ingress, {0: 5, 1: 0}) == {0: 10, 1: 0}

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
