"""Presence as a home reports it, whatever its clock does (R12)."""

import asyncio
from pathlib import Path

import pytest

from gateway.errors import SpoolError
from gateway.shard.spool import Spool
from pipelines.presence.attachments import ReportedEvent, after, state_of
from pipelines.presence.liveness import Liveness, Sign
from schemas.events import PresenceEvent, decode
from tests.unit.gateway.shard.home_harness import PARTITIONS, HomeHarness, turn
from tests.unit.gateway.shard.virtual_time import run

HOUR_S = 3600.0
TIMEOUT_MS = 30_000


def reported(harness: HomeHarness) -> list[PresenceEvent]:
    """Everything on `presence`; a partition's records in their order."""
    found = [harness.broker.partitions[harness.topics.presence, p] for p in range(PARTITIONS)]
    return [decode(PresenceEvent, record.value() or b"") for records in found for record in records]


def beats(harness: HomeHarness) -> list[PresenceEvent]:
    return [event for event in reported(harness) if not event.client]


def is_online(harness: HomeHarness, client: str) -> bool:
    """As the ledger merges it."""
    events = [event for event in reported(harness) if event.client == client]
    liveness = Liveness(TIMEOUT_MS, TIMEOUT_MS // 3)
    signs = [
        Sign(beat.gateway, beat.boot, number, beat.event == "disconnected")
        for number, beat in enumerate(beats(harness))
    ]
    for sign in signs:
        liveness.judge([sign], {}, PARTITIONS)
    converted = [ReportedEvent(*(getattr(event, name) for name in ReportedEvent._fields)) for event in events]
    return state_of(client, after([], converted, 8), liveness.gateways).online


def no_room(_spool: Spool, *_commit: object) -> None:
    raise SpoolError("the spool cannot be written: database or disk is full")


def set_clock(harness: HomeHarness, by_s: float) -> None:
    """The gateway's machine shows another time from now on."""
    clock = type(harness).clock
    harness.clock = lambda: clock(harness) + by_s  # type: ignore[method-assign]
    if harness.is_up:
        harness.node.clock = harness.clock


def test_a_clock_that_is_set_back_between_two_starts_makes_nobody_offline(tmp_path: Path) -> None:
    """R12: the later process counts as the later one, at once and over further starts, and so do its connections."""

    async def scenario() -> None:
        harness = HomeHarness(tmp_path)
        set_clock(harness, HOUR_S)
        await harness.start()
        await harness.client("c")
        await turn()
        assert is_online(harness, "c")
        for _ in range(3):
            harness.crash()
            set_clock(harness, 0)
            await harness.start()
            await turn()
            assert not is_online(harness, "c"), "lost with its gateway"
            await harness.client("c")
            await turn()
            assert is_online(harness, "c")
        boots = [beat.boot for beat in beats(harness)]
        assert boots == sorted(boots)
        assert len(set(boots)) == 4
        assert all(event.epoch >= event.boot for event in reported(harness))

    run(scenario())


def test_a_clock_that_is_set_back_while_the_gateway_runs_makes_nobody_offline(tmp_path: Path) -> None:
    """R12: a client without a session that outlives its connection comes again."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        client = await harness.client("c", clean_start=True, expiry_s=0)
        client.lose("connection_lost")
        await turn()
        assert not is_online(harness, "c")
        set_clock(harness, -HOUR_S)
        await harness.client("c", clean_start=True, expiry_s=0)
        await turn()
        assert is_online(harness, "c")

    run(scenario())


def test_a_start_with_a_full_disk_has_its_number_kept_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R12, G9: the gateway starts all the same; as soon as there is room a later process knows of this one."""

    async def scenario() -> None:
        harness = HomeHarness(tmp_path)
        set_clock(harness, HOUR_S)
        with monkeypatch.context() as full:
            full.setattr(Spool, "commit", no_room)
            await harness.start()
        boot = harness.node.numbers.boot
        assert not any(home.spool.outage.is_writing for home in harness.home.shards.values())
        await asyncio.sleep(5 * harness.settings().gateway.checkpoint_s)
        assert all(home.spool.outage.is_writing for home in harness.home.shards.values())
        harness.crash()
        set_clock(harness, 0)
        await harness.start()
        assert harness.node.numbers.boot == boot + 1

    run(scenario())
