"""Progress events: whose are sent when, and who waits for which (R4, G6)."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

from gateway.bus import Bus
from gateway.shard.messages import Message
from gateway.shard.progress import ProgressReporter
from mqtt.properties import NO_PROPERTIES
from tests.unit.gateway.shard.virtual_time import run


class Kafka:
    """Stores what is written once it is told to. `held` are the answers that are due, in order."""

    def __init__(self) -> None:
        self.held: list[Callable[[], None]] = []

    def produce_all(self, _topic: str, _partition: int, _records: Any, on_done: Any, _headers: Any = None) -> None:
        self.held.append(lambda: on_done(None, None))

    def store(self) -> None:
        held, self.held = self.held, []
        for answer in held:
            answer()


class Guard:
    """Its barriers are passed once it is told so."""

    are_read_back = True

    def __init__(self) -> None:
        self.barriers: list[Callable[[], None]] = []
        self.lose: Callable[[], None] = lambda: None

    def after_barrier(self, action: Callable[[], None]) -> None:
        self.barriers.append(action)

    def when_lost(self, action: Callable[[], None]) -> None:
        self.lose = action

    def passed(self) -> None:
        barriers, self.barriers = self.barriers, []
        for action in barriers:
            action()


def message(number: int) -> Message:
    of = f"id{number}", "source", "topic", b"", 1, False, None, NO_PROPERTIES
    return Message(*of, partition=0, offset=number, appended=0)


def reporter_over(kafka: Kafka, *guards: Guard) -> ProgressReporter:
    reporter = ProgressReporter(cast(Bus, kafka), "progress", 4, lambda error: None)
    for shard, guard in enumerate(guards):
        reporter.guard(shard, guard)
    return reporter


def test_a_shard_waits_for_its_own_events_only() -> None:
    """Else a checkpoint would wait for the barriers of all other shards."""

    async def scenario() -> None:
        kafka, guards = Kafka(), (Guard(), Guard())
        reporter = reporter_over(kafka, *guards)
        for shard in (0, 1):
            reporter.outcome(message(shard), shard, [], [])
        flushed = asyncio.ensure_future(reporter.flush(0))
        await asyncio.sleep(0)
        assert len(guards[0].barriers) == 1
        guards[0].passed()
        kafka.store()
        await flushed

    run(scenario())


def test_nothing_is_sent_before_its_barrier() -> None:
    async def scenario() -> None:
        kafka, guard = Kafka(), Guard()
        reporter = reporter_over(kafka, guard)
        reporter.outcome(message(1), 0, [], [])
        flushed = asyncio.ensure_future(reporter.flush(0))
        await asyncio.sleep(1)
        assert not kafka.held
        assert not flushed.done()
        guard.passed()
        assert len(kafka.held) == 1
        kafka.store()
        await flushed

    run(scenario())


def test_nobody_waits_for_the_events_of_a_shard_that_is_lost() -> None:
    """Those that wait for a barrier, and those that are not sent yet."""

    async def scenario() -> None:
        kafka, guard = Kafka(), Guard()
        reporter = reporter_over(kafka, guard)
        reporter.outcome(message(1), 0, [], [])
        flushed = asyncio.ensure_future(reporter.flush(0))
        await asyncio.sleep(0)
        reporter.outcome(message(2), 0, [], [])
        guard.lose()
        await flushed
        reporter.outcome(message(3), 0, [], [])
        await reporter.flush(0)
        assert not kafka.held

    run(scenario())


def test_shards_without_guards_share_what_is_sent() -> None:
    """As long as no gateways share shards."""

    async def scenario() -> None:
        kafka = Kafka()
        reporter = reporter_over(kafka)
        for shard in (0, 1):
            reporter.outcome(message(1), shard, [], [])
        flushed = asyncio.ensure_future(reporter.flush(0))
        await asyncio.sleep(0)
        assert len(kafka.held) == 1
        kafka.store()
        await flushed

    run(scenario())
