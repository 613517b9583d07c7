"""The stream administration service over a bus in memory, in virtual time (S1, S4)."""

import asyncio
from typing import Any

import pytest
from confluent_kafka import KafkaError

from feeds.registry_records import Assignment, RegistryKey
from gateway.errors import BusError, FeedConflict, FeedLimitReached
from gateway.feeds.service import FeedService
from schemas.events import encode
from schemas.feed_api import AdministrativeMessage, SubscriberRequest, SwitchRequest
from tests.unit.feeds.feed_beats import UNNUMBERED, beat
from tests.unit.gateway.feeds.feed_gateways import FEED, TOPIC, FeedGateways
from tests.unit.gateway.shard.virtual_time import run

BOTH: Any = ("active", "backup")


def kinds(service: FeedService) -> list[str]:
    changes = service.events.since(FEED, 0)
    assert changes is not None
    return [one.kind for one in changes]


def test_a_subscriber_is_told_of_both_streams_and_is_known_until_it_lapses() -> None:
    """S1: at any gateway, and the other one knows; renewal is the same again."""

    async def scenario() -> None:
        here = FeedGateways(subscriber_ttl_s=5, partitions=4)
        one, _ = await here.gateway()
        other, _ = await here.gateway()
        await here.beats(1.0, *BOTH, zone="")
        for _ in range(3):
            pair = await one.subscribe(FEED, SubscriberRequest(subscriber="s", mode="cold"), "ann")
            await here.beats(4.0, *BOTH)
            assert [service.state(FEED).subscribers for service in (one, other)] == [1, 1]
        assert (pair.topic, pair.partitions, pair.prefix, pair.mode) == ("ws.feed.radar", 4, "ws.", "cold")
        assert pair.active is not None
        assert pair.backup is not None
        assert (pair.active.machine, pair.backup.machine, pair.reason) == ("m-active", "m-backup", "")
        await here.beats(2.0, *BOTH)
        assert other.state(FEED).subscribers == 0
        with_other = await other.subscribe(FEED, SubscriberRequest(subscriber="t"), "ben")
        assert with_other.mode == "warm"
        await here.beats(0.4, *BOTH)
        with pytest.raises(FeedConflict):
            await one.subscribe(FEED, SubscriberRequest(subscriber="t"), "ann")
        with pytest.raises(FeedConflict):
            await one.unsubscribe(FEED, "t", "ann")
        assert await one.unsubscribe(FEED, "t", "ben")
        await here.beats(0.4, *BOTH)
        assert not await other.unsubscribe(FEED, "t", "ben")
        here.stop()

    run(scenario())


def test_a_dead_adapter_is_told_of_and_one_assignment_counts_everywhere() -> None:
    """S1: the active adapter dies; gateways switch without being asked, and all agree; nobody switches back."""

    async def scenario() -> None:
        here = FeedGateways()
        services = [(await here.gateway())[0] for _ in range(3)]
        await here.beats(1.0, *BOTH)
        assert {service.state(FEED).state for service in services} == {"redundant"}
        await here.beats(3.0, "backup")
        for service in services:
            state = service.state(FEED)
            assert (state.state, state.revision, state.backup) == ("single", 1, None)
            assert state.active is not None
            assert state.active.slot == "backup"
            assert service.detail(FEED).assignment.automatic
            told = kinds(service)
            assert told[:3] == ["adapter_came", "adapter_came", "redundant"]
            assert sorted(told[3:]) == ["adapter_died", "single", "switched"]
        assert {one.revision for one in here.assignments()} == {1}
        await here.beats(3.0, *BOTH)
        assert {service.state(FEED).revision for service in services} == {1}
        assert {service.state(FEED).state for service in services} == {"redundant"}
        here.stop()

    run(scenario())


def test_failback_follows_the_setting() -> None:
    """S1: once the adapter has been back for the time, and not back and forth after that."""

    async def scenario() -> None:
        here = FeedGateways(failback="when_back", failback_after_s=5.0)
        service, _ = await here.gateway()
        for slots in (BOTH, ("backup",), BOTH):
            await here.beats(4.0, *slots)
        assert service.detail(FEED).assignment.active == "backup"
        await here.beats(20.0, *BOTH)
        assignment = service.detail(FEED).assignment
        assert (assignment.active, assignment.revision, assignment.automatic) == ("active", 2, False)
        here.stop()

    run(scenario())


def test_a_gateway_that_starts_or_loses_kafka_switches_nothing() -> None:
    """S1: it has to follow a feed for a while before it calls an adapter dead."""

    async def scenario() -> None:
        here = FeedGateways()
        here.beat(*BOTH)
        await asyncio.sleep(100.0)
        await here.gateway()  # knows both from before, and hears of the backup first
        await asyncio.sleep(5.0)
        for _ in range(3):
            here.beat("backup")
            await asyncio.sleep(0.25)
            here.beat("active")
            await asyncio.sleep(10.0)  # both silent: Kafka is away
        assert not here.assignments()
        here.stop()

    run(scenario())


def test_of_concurrent_switches_one_wins_and_the_other_is_told() -> None:
    """S1: two gateways, the same revision; the first on the topic counts."""

    async def scenario() -> None:
        here = FeedGateways()
        (one, _), (other, bus) = await here.gateway(), await here.gateway()
        await here.beats(1.0, *BOTH)
        bus.held_stores.add(TOPIC)
        request = SwitchRequest(active="backup", reason="maintenance")
        late = asyncio.ensure_future(other.switch(FEED, request, "ben"))
        await asyncio.sleep(0)
        won = await one.switch(FEED, request, "ann")
        assert (won.active, won.revision, won.by, won.reason) == ("backup", 1, "ann", "maintenance")
        bus.held_stores.clear()
        bus.release()
        with pytest.raises(FeedConflict, match="came first"):
            await late
        assert (await other.switch(FEED, request, "ben")).by == "ann", "it already is: nothing is written"
        await here.beats(1.0, *BOTH)
        assert here.assignments()[-1].by == "ann", "what counts is written again behind the one that does not"
        for counts in here.counts:
            assert counts["feed_switches"] == 1
        back = await other.switch(FEED, SwitchRequest(active="active"), "ben")
        assert back.revision == 2
        here.stop()

    run(scenario())


def test_nobody_switches_to_a_stream_that_is_not_written() -> None:
    async def scenario() -> None:
        here = FeedGateways()
        service, bus = await here.gateway()
        await here.beats(1.0, "active")
        with pytest.raises(FeedConflict, match="no adapter that is alive writes the backup stream"):
            await service.switch(FEED, SwitchRequest(active="backup"), "ann")
        await here.beats(0.4, *BOTH)
        bus.refused[TOPIC] = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
        with pytest.raises(BusError):
            await service.switch(FEED, SwitchRequest(active="backup"), "ann")
        here.stop()

    run(scenario())


def test_a_refused_pair_names_one_stream_and_the_reason() -> None:
    """S1: as feeds.pairing decides; the detail says so too."""

    async def scenario() -> None:
        here = FeedGateways()
        service, _ = await here.gateway()
        await here.beats(1.0, *BOTH, source=UNNUMBERED)
        pair = await service.subscribe(FEED, SubscriberRequest(subscriber="s"), "ann")
        assert pair.active is not None
        assert pair.backup is None
        assert "no sequence numbers" in pair.reason
        detail = service.detail(FEED)
        assert detail.pair is not None
        assert detail.pair.refused == pair.reason
        here.stop()

    run(scenario())


def test_a_feed_in_detail_says_how_far_apart_the_streams_are() -> None:
    """S1: by the positions in the heartbeats; and what would be safer."""

    async def scenario() -> None:
        here = FeedGateways()
        service, _ = await here.gateway()
        here.beat("active", streams={"radar@1": [105, 9], "x@1": [1, 1]}, machine="m", messages=3)
        here.beat("backup", streams={"radar@1": [101, 9]}, machine="m", malformed=2)
        await asyncio.sleep(0.1)
        detail = service.detail(FEED)
        assert [(one.stream, one.lag) for one in detail.lag] == [("radar@1", 4)]
        assert [one.messages for one in detail.adapters] == [3, 0]
        assert detail.adapters[0].source == "Mode S from radar, numbered by the sequencer tower"
        assert detail.pair is not None
        assert detail.pair.numbers_from == "the sequencer tower"
        assert len(detail.advice) == 1
        assert "on the machine m" in detail.advice[0]
        here.stop()

    run(scenario())


def test_administrative_messages_are_asked_for_answered_and_forgotten() -> None:
    """S4: pending, then the result, and after a while no records are left; more than allowed are refused."""

    async def scenario() -> None:
        here = FeedGateways(requests=2, request_kept_s=30.0)
        (one, _), (other, _) = await here.gateway(), await here.gateway()
        message = AdministrativeMessage(stream="radar@1", payload="end of day", lead=3)
        asked = [await one.administrative(FEED, message, "ann") for _ in range(2)]
        await asyncio.sleep(0.1)
        with pytest.raises(FeedLimitReached):
            await other.administrative(FEED, message, "ann")
        names = [state.id for state in asked]
        here.result(names[0], "both")
        await asyncio.sleep(0.1)
        states = [other.administrative_state(FEED, name) for name in names]
        assert [state and state.outcome for state in states] == ["both", "pending"]
        assert len(here.keys()) == 3
        await asyncio.sleep(120.0)
        assert here.keys() == []
        assert [other.administrative_state(FEED, name) for name in names] == [None, None]
        assert (await other.administrative(FEED, message, "ann")).outcome == "pending"
        here.stop()

    run(scenario())


def test_what_an_adapter_has_announced_stays_on_the_topic_until_it_has_a_result() -> None:
    """S4: the source may be silent for long, and an adapter that starts again knows of the message by these records
    only. The result stays as long as any other."""

    async def scenario() -> None:
        here = FeedGateways(request_kept_s=30.0)
        first, bus = await here.gateway()
        asked = await first.administrative(FEED, AdministrativeMessage(stream="radar@1", payload="x", lead=3), "ann")
        here.announcement(asked.id)
        await asyncio.sleep(300.0)
        left = here.keys()
        assert [key.split(b"/")[0] for key in left] == [b"announcement", b"request"]
        here.stop()
        bus.crash()
        later, _ = await here.gateway()
        await asyncio.sleep(300.0)
        assert here.keys() == left
        here.result(asked.id, "both")
        await asyncio.sleep(20.0)
        state = later.administrative_state(FEED, asked.id)
        assert state is not None
        assert state.outcome == "both"
        await asyncio.sleep(100.0)
        assert here.keys() == []
        here.stop()

    run(scenario())


def test_lapsed_subscribers_are_removed_from_the_topic_also_those_from_before() -> None:
    """S1: a gateway that starts later removes what nobody renews; what is renewed stays."""

    async def scenario() -> None:
        here = FeedGateways(subscriber_ttl_s=20)
        first, bus = await here.gateway()
        for name in ("stays", "goes"):
            await first.subscribe(FEED, SubscriberRequest(subscriber=name), "ann")
        here.stop()
        bus.crash()
        service, _ = await here.gateway()
        for _ in range(30):
            await service.subscribe(FEED, SubscriberRequest(subscriber="stays"), "ann")
            await asyncio.sleep(10.0)
        assert here.keys() == [b"subscriber/radar/stays"]
        here.stop()

    run(scenario())


def test_no_more_subscribers_than_allowed() -> None:
    async def scenario() -> None:
        here = FeedGateways(subscribers=2)
        service, _ = await here.gateway()
        for name in ("a", "b", "a", "b"):
            await service.subscribe(FEED, SubscriberRequest(subscriber=name), "ann")
            await asyncio.sleep(0.1)
        with pytest.raises(FeedLimitReached, match=r"feeds\.subscribers"):
            await service.subscribe(FEED, SubscriberRequest(subscriber="c"), "ann")
        here.stop()

    run(scenario())


def test_calls_at_the_same_time_are_held_to_the_limits_together() -> None:
    """S1, S4: what is on its way to the topic counts, so no live entry is displaced; what Kafka refuses does not."""

    async def scenario() -> None:
        here = FeedGateways(subscribers=2, requests=2)
        service, bus = await here.gateway()
        message = AdministrativeMessage(stream="radar@1", payload="x", lead=3)
        for renewed in ("a", "a"):
            await service.subscribe(FEED, SubscriberRequest(subscriber=renewed), "ann")
            await asyncio.sleep(0.1)
        bus.refused[TOPIC] = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
        with pytest.raises(BusError):
            await service.subscribe(FEED, SubscriberRequest(subscriber="z"), "ann")
        with pytest.raises(BusError):
            await service.administrative(FEED, message, "ann")
        bus.refused.clear()
        calls = [service.subscribe(FEED, SubscriberRequest(subscriber=name), "ann") for name in "abbcd"]
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert [isinstance(one, FeedLimitReached) for one in outcomes] == [False, False, False, True, True]
        asked = [service.administrative(FEED, message, "ann") for _ in range(4)]
        outcomes = await asyncio.gather(*asked, return_exceptions=True)
        assert [isinstance(one, FeedLimitReached) for one in outcomes] == [False, False, True, True]
        await asyncio.sleep(0.1)
        assert service.state(FEED).subscribers == 2
        assert here.counts[0]["feed_entries_forgotten"] == 0
        here.stop()

    run(scenario())


def test_whatever_is_on_the_topic_the_service_goes_on_and_counts_it() -> None:
    """S1: malformed records, contradicting sources, feeds without end, revisions without a successor."""

    async def scenario() -> None:
        here = FeedGateways(feeds=3, adapters=4)
        service, _ = await here.gateway()
        bad = [
            (b"", b"{}"),
            (b"\xff/x/y", b"{}"),
            (b"adapter/radar/a", b"[]"),
            (b"adapter/radar/a", b"{" * 300_000),
            (b"adapter/radar/a", b'{"v":1,"unknown":' + b"[" * 100_000),
            (b"assignment/radar", b'{"v":1,"active":"both","revision":1,"reason":"","by":"","at_us":0}'),
            (b"assignment/radar", b'{"v":2,"active":"backup","revision":1,"reason":"","by":"","at_us":0}'),
            (b"subscriber/radar/s", b'{"v":1,"ttl_s":0,"at_us":0}'),
            (b"result/../x", b"{}"),
        ]
        for key, value in bad:
            here.put(key, value)
        for number in range(5):
            here.write(RegistryKey("adapter", f"more-{number}", "a"), beat("active", 1))
        await asyncio.sleep(0.1)
        assert here.counts[0]["feed_records_skipped"] == len(bad) + 3
        assert service.feeds() == ["more-0", "more-1", FEED]
        impossible = UNNUMBERED.__class__(format="moldudp64", name="m", sequencer="s")  # type: ignore[arg-type]
        await here.beats(1.0, *BOTH, source=impossible)
        assert service.state(FEED).state == "refused"
        last = Assignment(active="active", revision=2**63 - 1, reason="", by="x", at_us=0)
        here.put(b"assignment/radar", encode(last))
        await here.beats(0.4, *BOTH)
        with pytest.raises(FeedConflict, match="highest revision"):
            await service.switch(FEED, SwitchRequest(active="backup"), "ann")
        here.put(b"assignment/radar", None)
        await here.beats(0.4, *BOTH)
        assert (await service.switch(FEED, SwitchRequest(active="backup"), "ann")).revision == 1
        for number in range(2):
            here.write(RegistryKey("adapter", f"more-{number}", "a"), None)
        await here.beats(0.4, *BOTH)
        assert service.feeds() == [FEED]
        here.write(RegistryKey("adapter", "another", "a"), beat("active", 1))
        await here.beats(0.4, *BOTH)
        assert service.feeds() == ["another", FEED], "there is room again"
        here.stop()

    run(scenario())
