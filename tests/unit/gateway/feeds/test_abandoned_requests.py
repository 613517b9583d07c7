"""Announced administrative messages whose adapters never come back (S4)."""

import asyncio

import pytest

from gateway.errors import FeedLimitReached
from schemas.errors import SettingsError
from schemas.feed_api import AdministrativeMessage
from schemas.settings import process_settings
from tests.unit.gateway.feeds.feed_gateways import FEED, FeedGateways
from tests.unit.gateway.shard.virtual_time import run

MESSAGE = AdministrativeMessage(stream="radar@1", payload="end of day", lead=3)


def test_a_message_whose_adapters_never_come_back_is_given_up() -> None:
    """Counted from their last beat. The result says that nobody knows; it is kept as any other, and then the message
    has its place no more."""

    async def scenario() -> None:
        here = FeedGateways(requests=1, request_kept_s=150.0, abandoned_s=1_000.0)
        service, _ = await here.gateway()
        asked = await service.administrative(FEED, MESSAGE, "ann")
        here.announcement(asked.id)
        await here.beats(300.0, "active")
        await asyncio.sleep(990.0)
        state = service.administrative_state(FEED, asked.id)
        assert state is not None
        assert state.outcome == "pending"
        with pytest.raises(FeedLimitReached):
            await service.administrative(FEED, MESSAGE, "ann")
        await asyncio.sleep(80.0)
        state = service.administrative_state(FEED, asked.id)
        assert state is not None
        assert (state.outcome, state.after, state.part) == ("unknown", 7, 1)
        assert "1000 s" in state.reason
        assert here.counts[0]["feed_requests_abandoned"] == 1
        await asyncio.sleep(250.0)
        assert here.keys() == [b"adapter/radar/active"]
        assert (await service.administrative(FEED, MESSAGE, "ann")).outcome == "pending"
        here.stop()

    run(scenario())


def test_a_message_waits_as_long_as_an_adapter_is_there() -> None:
    """The source may be silent for long."""

    async def scenario() -> None:
        here = FeedGateways(abandoned_s=60.0)
        service, _ = await here.gateway()
        asked = await service.administrative(FEED, MESSAGE, "ann")
        here.announcement(asked.id)
        await here.beats(400.0, "backup")
        state = service.administrative_state(FEED, asked.id)
        assert state is not None
        assert state.outcome == "pending"
        assert not here.counts[0]["feed_requests_abandoned"]
        here.stop()

    run(scenario())


def test_a_gateway_that_starts_waits_anew() -> None:
    """It does not know for how long adapters have been gone."""

    async def scenario() -> None:
        here = FeedGateways(abandoned_s=100.0)
        first, bus = await here.gateway()
        asked = await first.administrative(FEED, MESSAGE, "ann")
        here.announcement(asked.id)
        await asyncio.sleep(90.0)
        here.stop()
        bus.crash()
        later, _ = await here.gateway()
        await asyncio.sleep(95.0)
        states = [later.administrative_state(FEED, asked.id)]
        await asyncio.sleep(70.0)
        states.append(later.administrative_state(FEED, asked.id))
        assert [state and state.outcome for state in states] == ["pending", "unknown"]
        here.stop()

    run(scenario())


def test_the_time_is_not_shorter_than_that_of_a_beat() -> None:
    with pytest.raises(SettingsError, match=r"feeds\.abandoned_s"):
        process_settings({"WAYSTATION_FEEDS__ABANDONED_S": "0.1"})
