"""The home is killed after each single step of a story that has all of them: attach, SUBSCRIBE, PUBLISH, PUBREC,
PUBREL, checkpoints, take-over, wills, expiry (Q1, R8, G8, G9).

A step is one round of the event loop: between two of them nothing happens, so that there are no other moments to die.
"""

import asyncio
import contextlib
import tempfile
from pathlib import Path
from typing import cast

import pytest

from schemas.session_log import WillRecord
from tests.unit.gateway.shard.home_client import Client
from tests.unit.gateway.shard.home_harness import LEAD_S, HomeHarness, turn
from tests.unit.gateway.shard.virtual_time import VirtualLoop, run

PARTS = 4
STRIDE = 9


class Life:
    """A story of a few seconds, and what must be true however it was interrupted."""

    def __init__(self, harness: HomeHarness) -> None:
        self.harness = harness
        self.is_subscribed = False
        self.owed: list[bytes] = []
        self.with_will: list[bytes] = []
        self.maybe_will: list[bytes] = []
        self.watcher: Client
        self.sender: Client
        self.receiver: Client
        self.mortal: Client

    async def begin(self) -> None:
        """What was there before, long enough for its routes to be in effect."""
        self.watcher = await self.harness.client("watcher")
        await self.watcher.subscribe("w/#", "a/#")
        await turn(LEAD_S + 5)
        self.sender, self.receiver, self.mortal = (
            Client(self.harness, name, **options)
            for name, options in (("sender", {}), ("receiver", {"receive_maximum": 2}), ("mortal", {"expiry_s": 1}))
        )
        self.harness.clients += [self.sender, self.receiver, self.mortal]

    async def live(self) -> None:
        """Is killed anywhere in here."""
        await self.sender.connect()
        await self.receiver.connect()
        await self.receiver.subscribe("a/+")
        self.is_subscribed = True
        self._publish(b"1", 2)
        self._publish(b"2", 1)
        self._publish(b"3", 2)
        await turn(0.3)
        self.receiver.lose()
        self._publish(b"4", 2)
        self._publish(b"5", 1)
        await turn(5.6)
        self._publish(b"6", 2)
        await self.receiver.connect()
        await turn(0.3)
        await self._connect_with_will(b"taken over")
        await self._connect_with_will(b"lost")
        self.sender.publish("a/kept", b"kept", 2, retain=True)
        await turn(0.1)
        self.mortal.lose()
        await turn(1.3)
        await self.receiver.unsubscribe("a/+")
        self.is_subscribed = False
        await turn(0.3)

    async def _connect_with_will(self, payload: bytes) -> None:
        """The mortal one takes its own session over: the earlier connection's will is due."""
        self.mortal.will = WillRecord("w/x", payload, 2, False, b"\0", 0, None)
        self.maybe_will.append(payload)
        await self.mortal.connect()
        self.with_will.append(payload)
        await turn(0.1)

    def _publish(self, payload: bytes, qos: int) -> None:
        self.owed.append(payload)
        self.sender.publish("a/b", payload, qos)

    async def go_on(self) -> None:
        """After the crash: everybody comes back."""
        for client in (self.watcher, self.sender, self.receiver):
            await client.connect()
        await turn(LEAD_S + 20)

    def check(self) -> None:
        harness = self.harness
        assert not harness.fatal
        for client in (self.watcher, self.receiver):
            owed = self.owed if client is self.watcher or self.is_subscribed else []
            assert set(owed) <= set(client.payloads), f"{client.name} lost {set(owed) - set(client.payloads)}"
            for payload in (b"1", b"3", b"4", b"6", b"kept", b"taken over", b"lost"):
                assert client.payloads.count(payload) <= 1, f"{client.name} got {payload!r} twice"
            firsts = [p for p in dict.fromkeys(client.payloads) if p in self.owed]
            assert firsts == sorted(firsts)
        assert set(self.owed) <= self.sender.acknowledged
        wills = [p for p in self.watcher.payloads if p in self.maybe_will]
        assert set(self.with_will) <= set(wills) <= set(self.maybe_will)
        assert wills == sorted(wills, key=self.maybe_will.index)
        assert harness.home.session("mortal") is None
        assert harness.relinquished() == harness.instructions()
        assert harness.completed() == set(harness.published())
        assert harness.spool_rows() == 0
        for client in (self.watcher, self.sender, self.receiver):
            session = client.attached.session
            assert not any((session.queued, session.restored, session.in_flight, session.inbound))


async def _die(step: int | None, stored: int, disk: str = "kept") -> int:
    """Lives through the story and dies `step` rounds after its beginning; returns how many rounds it has. What becomes
    of the `disk`: see `HomeHarness.change_disk`."""
    loop = cast(VirtualLoop, asyncio.get_running_loop())
    with tempfile.TemporaryDirectory() as directory:
        harness = await HomeHarness(Path(directory)).start()
        life = Life(harness)
        await life.begin()
        first = loop.turns
        living = asyncio.ensure_future(life.live())
        if step is not None:
            dead = loop.create_future()

            def kill() -> None:
                harness.crash(stored)
                loop.call_soon(dead.set_result, None)

            loop.call_at_turn(first + step, kill)
            await dead
            living.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await living
            harness.change_disk(disk)
            await harness.start()
        else:
            await living
        rounds = loop.turns - first
        await life.go_on()
        life.check()
        harness.crash()
        return rounds


@pytest.mark.drawn("steps of a life", 2)
@pytest.mark.parametrize("disk", ["kept", "lost"])
@pytest.mark.parametrize("stored", [0, 1])
@pytest.mark.parametrize("part", range(PARTS))
def test_killed_after_each_step(part: int, stored: int, disk: str) -> None:
    """Q1, R8, G8, G9: nothing acknowledged lost, nothing at QoS 2 doubled, order, wills, expiry, completion."""
    rounds = run(_die(None, 0))
    assert rounds > 100
    for step in range(1 + part * STRIDE, rounds, PARTS * STRIDE):
        try:
            run(_die(step, stored, disk))
        except AssertionError as error:
            raise AssertionError(
                f"killed after step {step} of {rounds}, {stored} records of each topic stored"
            ) from error
