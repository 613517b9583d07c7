"""Presence as a home reports it, whatever its clock does (R12)."""

import asyncio
from pathlib import Path

import pytest

from gateway.errors import SpoolError
from gateway.home.spool import Spool
from gateway.home.spool_batch import SpoolBatch
from pipelines.presence.attachments import ReportedEvent, after, state_of
from pipelines.presence.liveness import Liveness, Sign
from schemas.events import PresenceEvent, decode
from tests.unit.gateway.home.home_world import PARTITIONS, World, turn
from tests.unit.gateway.home.virtual_time import run

HOUR_S = 3600.0
TIMEOUT_MS = 30_000


def reported(world: World) -> list[PresenceEvent]:
    """Everything on `presence`; a partition's records in their order."""
    found = [world.broker.partitions[world.topics.presence, p] for p in range(PARTITIONS)]
    return [decode(PresenceEvent, record.value() or b"") for records in found for record in records]


def beats(world: World) -> list[PresenceEvent]:
    return [event for event in reported(world) if not event.client]


def is_online(world: World, client: str) -> bool:
    """As the ledger merges it."""
    events = [event for event in reported(world) if event.client == client]
    liveness = Liveness(TIMEOUT_MS, TIMEOUT_MS // 3)
    signs = [
        Sign(beat.gateway, beat.boot, number, beat.event == "disconnected") for number, beat in enumerate(beats(world))
    ]
    for sign in signs:
        liveness.judge([sign], {}, PARTITIONS)
    reported = [ReportedEvent(*(getattr(event, name) for name in ReportedEvent._fields)) for event in events]
    return state_of(client, after([], reported, 8), liveness.gateways).online


def no_room(_spool: Spool, _batch: SpoolBatch) -> None:
    raise SpoolError("the spool cannot be written: database or disk is full")


def set_clock(world: World, by_s: float) -> None:
    """The gateway's machine shows another time from now on."""
    clock = type(world).clock
    world.clock = lambda: clock(world) + by_s  # type: ignore[method-assign]
    if world.is_up:
        world.context.clock = world.clock


def test_a_clock_that_is_set_back_between_two_starts_makes_nobody_offline(tmp_path: Path) -> None:
    """R12: the later process counts as the later one, at once and over further starts, and so do its connections."""

    async def scenario() -> None:
        world = World(tmp_path)
        set_clock(world, HOUR_S)
        await world.start()
        await world.client("c")
        await turn()
        assert is_online(world, "c")
        for _ in range(3):
            world.crash()
            set_clock(world, 0)
            await world.start()
            await turn()
            assert not is_online(world, "c"), "lost with its gateway"
            await world.client("c")
            await turn()
            assert is_online(world, "c")
        boots = [beat.boot for beat in beats(world)]
        assert boots == sorted(boots)
        assert len(set(boots)) == 4
        assert all(event.epoch >= event.boot for event in reported(world))

    run(scenario())


def test_a_clock_that_is_set_back_while_the_gateway_runs_makes_nobody_offline(tmp_path: Path) -> None:
    """R12: a client without a session that outlives its connection comes again."""

    async def scenario() -> None:
        world = await World(tmp_path).start()
        client = await world.client("c", clean_start=True, expiry_s=0)
        client.lose("connection_lost")
        await turn()
        assert not is_online(world, "c")
        set_clock(world, -HOUR_S)
        await world.client("c", clean_start=True, expiry_s=0)
        await turn()
        assert is_online(world, "c")

    run(scenario())


def test_a_start_with_a_full_disk_has_its_number_kept_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R12, G9: the gateway starts all the same; as soon as there is room a later process knows of this one."""

    async def scenario() -> None:
        world = World(tmp_path)
        set_clock(world, HOUR_S)
        with monkeypatch.context() as full:
            full.setattr(Spool, "commit", no_room)
            await world.start()
        boot = world.context.boot
        assert not world.context.outage.is_writing
        await asyncio.sleep(5 * world.settings().gateway.checkpoint_s)
        assert world.context.outage.is_writing
        world.crash()
        set_clock(world, 0)
        await world.start()
        assert world.context.boot == boot + 1

    run(scenario())
