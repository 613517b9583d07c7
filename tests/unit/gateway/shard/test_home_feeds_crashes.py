"""The home is killed after a step of a story with two lossy adapters: the same is merged again, and each subscriber
gets it once (S3, Q1, R4). A step is one round of the event loop."""

import asyncio
import contextlib
import random
import tempfile
from pathlib import Path
from typing import cast

import pytest

from feeds.message import Feed
from mqtt.packets import Subscription
from tests import draw
from tests.unit.gateway.shard.feed_harness import FEED, A, B, FeedHarness, number_of
from tests.unit.gateway.shard.home_client import Client
from tests.unit.gateway.shard.home_harness import LEAD_S, turn
from tests.unit.gateway.shard.virtual_time import VirtualLoop, run

STREAMS = ("radar@0", "sonar@0")
STORIES = 2

Copies = list[tuple[float, Feed, str, int]]


def story(seed: int) -> Copies:
    """What two adapters write, with the pause before it: each loses a part, one lags, both reorder a little."""
    rng = random.Random(seed)
    found: list[tuple[float, Feed, str, int]] = []
    for slot in (A, B):
        lag = rng.choice([0.0, 0.005, 0.12])
        for stream in STREAMS:
            at = 0.0
            for n in range(14):
                at += rng.choice([0.0, 0.002, 0.02, 0.07])
                if rng.random() > 0.25:
                    found.append((at + lag + rng.choice([0.0, 0.0, 0.03]), slot, stream, n))
    found.sort(key=lambda one: one[0])
    times = [0.0, *(one[0] for one in found)]
    return [(at - before, *rest) for before, (at, *rest) in zip(times, found, strict=False)]


class Life:
    """`receivers` at QoS 2, 1 and 0; the first one comes and goes, the second comes while the copies do. If it `waits`,
    their route is in effect before the first copy; else the home reads all copies on `ingress`."""

    def __init__(self, harness: FeedHarness, copies: Copies, *, waits: bool) -> None:
        self.harness = harness
        self._waits = waits
        self._copies = copies
        self.receivers: list[Client] = []

    async def begin(self) -> None:
        for qos in (2, 1, 0):
            client = await self.harness.client(f"receiver {qos}", receive_maximum=3)
            self.receivers.append(client)
            if qos != 1:
                await client.subscribe(Subscription(f"feeds/{FEED}/#", qos))
        await turn(LEAD_S + 5 if self._waits else 0.5)

    async def write(self) -> None:
        """The adapters go on, whatever becomes of the gateway."""
        for pause, slot, stream, n in self._copies:
            await asyncio.sleep(pause)
            self.harness.copy(slot, n, stream=stream)

    async def live(self) -> None:
        """Is killed anywhere in here."""
        two, one, _ = self.receivers
        await turn(0.1)
        await one.subscribe(Subscription("feeds/#", 1))
        two.lose()
        await turn(0.3)
        await two.connect()
        await turn(0.4)

    async def go_on(self) -> None:
        for client in self.receivers:
            await client.connect()
        await self.receivers[1].subscribe(Subscription("feeds/#", 1))
        await turn(LEAD_S + 10)

    def check(self) -> None:
        harness = self.harness
        assert not harness.fatal
        assert harness.held == 0
        for client in self.receivers:
            merged = harness.merged(harness.home.home_of(client.name).number)
            payloads = [payload for payload, _ in merged]
            assert len(set(map(number_of, payloads))) == len(payloads), "a number was merged twice"
            for stream in STREAMS:
                in_order = [number_of(p).split() for p, is_late in merged if not is_late and stream.encode() in p]
                numbers = [int(number.split(".")[0]) for _, number in in_order]
                assert numbers == sorted(numbers)
            if client is self.receivers[0]:
                assert set(map(number_of, payloads)) == harness.written, "what one adapter had is missing"
                assert client.payloads == payloads
            elif client is self.receivers[1]:
                firsts = [*dict.fromkeys(client.payloads)]
                assert firsts == [p for p in payloads if p in set(firsts)], "not in the order of the merge"
                assert firsts == payloads[len(payloads) - len(firsts) :], "something is missing in between"
            else:
                places = [payloads.index(payload) for payload in client.payloads]
                assert places == sorted(set(places)), "twice at QoS 0, or not in the order of the merge"
        assert harness.relinquished() == harness.instructions()
        assert harness.spool_rows() == 0
        for shard in harness.home.states:
            assert shard.restart == shard.position


async def _die(number: int, step: int | None, stored: int, disk: str) -> int:
    """Dies `step` rounds after the beginning; returns how many rounds there are."""
    loop = cast(VirtualLoop, asyncio.get_running_loop())
    with tempfile.TemporaryDirectory() as directory:
        harness = FeedHarness(Path(directory))
        await harness.start()
        life = Life(harness, story(number), waits=number % 2 == 0)
        await life.begin()
        first = loop.turns
        writing, living = asyncio.ensure_future(life.write()), asyncio.ensure_future(life.live())
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
        await writing
        await life.go_on()
        life.check()
        harness.crash()
        return rounds


@pytest.mark.parametrize("number", range(STORIES))
def test_the_same_is_merged_after_a_crash_at_any_step(number: int) -> None:
    """S3, S6, Q1, R4: the decisions are those that the shard's `egress` alone gives; each subscriber gets what was
    merged, once at QoS 2, in that order; every instruction is relinquished."""
    rounds = run(_die(number, None, 0, "kept"))
    assert rounds > 100
    generator = draw.generator(f"steps of the feeds' story {number}")
    steps = range(1, rounds) if draw.SOAK else sorted(generator.sample(range(1, rounds), draw.examples(5)))
    for step in steps:
        stored, disk = generator.choice([0, 1]), generator.choice(["kept", "lost"])
        try:
            run(_die(number, step, stored, disk))
        except AssertionError as error:
            raise AssertionError(f"killed after step {step} of {rounds}, stored {stored}, disk {disk}") from error
