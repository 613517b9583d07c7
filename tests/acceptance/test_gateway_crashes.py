"""`kill -9` of the gateway, again and again, at random moments under load (Q1, R8, G8, G9).

Six times, fifty with `make soak`; TEST_KILLS says how often, TEST_SEED repeats a run's moments.
"""

import asyncio
import math
import os
import signal
import sys
import time
import uuid
from statistics import median
from typing import NamedTuple

import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from jobs.stack.state import ProcessState
from jobs.stack.topics import admin_client
from schemas.readiness import read_ready
from schemas.topics import Topics
from tests import draw
from tests.acceptance.gateway_soak import Soak
from tests.acceptance.stack import Stack
from tests.faithful_client import eventually

KILLS = int(os.environ.get("TEST_KILLS", draw.times(6, 50)))
REST_EVERY = 3
START_S = 90.0
OF_SECONDS = 1_500
"""Records of a topic that some seconds of this load leave behind: a start reads no more if all was acknowledged before
these seconds."""


class Restart(NamedTuple):
    """`seconds` from the kill to ready again; `recovered` counts what the gateway read for it."""

    seconds: float
    recovered: dict[str, int]


class GatewayKiller:
    """Kills the stack's gateway; its supervisor starts it again. `up_since`: when it was ready, infinity until then."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self.restarts: list[Restart] = []
        self.up_since = time.monotonic()

    async def kill(self) -> None:
        """Returns once another one is ready."""
        before = self._gateway()
        began, self.up_since = time.monotonic(), math.inf
        os.kill(before.pid, signal.SIGKILL)

        def is_back() -> bool:
            gateway = self._gateway()
            return gateway.pid != before.pid and gateway.state == "ready"

        await eventually(is_back, "the gateway is back", START_S)
        self.up_since = time.monotonic()
        ready = read_ready(self._stack.data, "gateway") or {}
        self.restarts.append(Restart(self.up_since - began, ready["recovered"]))

    def _gateway(self) -> ProcessState:
        return next(process for process in self._stack.state.processes if process.name == "gateway")


def compact_soon(stack: Stack) -> None:
    """Has the broker compact the session log within the minutes of this test, as it does over hours otherwise."""
    name = Topics("ws.").sessions
    changed = [
        ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        for key, value in {
            "segment.ms": "5000",
            "min.cleanable.dirty.ratio": "0.01",
            "min.compaction.lag.ms": "0",
        }.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=changed)
    admin = admin_client(stack.state.bootstrap, {})
    for done in admin.incremental_alter_configs([resource]).values():
        done.result(30)


async def live_through(stack: Stack) -> tuple[Soak, GatewayKiller]:
    rng = draw.generator("moments of kills")
    killer = GatewayKiller(stack)
    port = stack.mqtt_port
    soak = Soak(lambda: port, uuid.uuid4().hex[:8], rng, lambda: killer.up_since)
    await soak.begin()
    for number in range(1, KILLS + 1):
        await asyncio.sleep(rng.uniform(0.0, 1.5))
        await killer.kill()
        soak.check()
        if number % REST_EVERY == 0 and number < KILLS:
            await soak.rest()
            soak.go_on()
    await soak.end()
    return soak, killer


def report(killer: GatewayKiller, soak: Soak, seconds: float) -> list[str]:
    """How each restart went, and what the soak has lived through."""
    restarts = killer.restarts
    lines = [f"{n:3} ready after {r.seconds:.2f} s, having read {r.recovered}" for n, r in enumerate(restarts, 1)]
    sent = sum(map(len, soak.sent))
    lines.append(f"{len(restarts)} kills in {seconds:.0f} s, {sent} messages; checked: {dict(soak.checks)}")
    lines.append(f"from kill to ready: median {median(r.seconds for r in restarts):.2f} s")
    return lines


@draw.killed_or_replaced
@pytest.mark.timeout(120 + 15 * KILLS)
def test_killed_again_and_again(stack: Stack, capsys: pytest.CaptureFixture[str]) -> None:
    """Q1, R8, G8, G9: nothing acknowledged is lost, nothing at QoS 2 comes twice, what comes twice at QoS 1 says so,
    order holds, sessions, wills and retained messages are right; a start reads what is unacknowledged, not history."""
    compact_soon(stack)
    began = time.monotonic()
    soak, killer = asyncio.run(live_through(stack))
    with capsys.disabled():
        sys.stderr.write("\n".join([*report(killer, soak, time.monotonic() - began), ""]))
    for topic in ("egress", "ingress", "sessions", "routes"):
        read = [restart.recovered.get(topic, 0) for restart in killer.restarts]
        rested = read[::REST_EVERY]
        assert max(rested) <= rested[0] + OF_SECONDS, f"{topic}: {read}"
