"""100,000 messages wait for days: an agent starts at once, its memory stays as it is, and all of it leaves at 1,000 a
second and more (M2, M19); so do bundles of the mesh.

Times are those of the agent's processor, so that a busy machine does not matter. The whole backlog only with SOAK=1;
`make bench ARGS="--only edge"` measures the same by the clock.
"""

import asyncio
import re
import subprocess
import sys
from pathlib import Path

import pytest

from bench.edge_agent import TOPIC, AgentProcess
from bench.mesh_node import fill
from edge.link import Address
from edge.mqtt_client import MqttClient
from mqtt.packets import Connect, Publish
from tests import draw
from tests.documents import ROOT
from tests.mosquitto import HOST, Mosquitto, free_port

MESSAGES, PAYLOAD_BYTES = 100_000 if draw.SOAK else 4_000, 256
START_S, PER_S = 3.0, 1_000
RESIDENT_MB = 80.0
"""The most that an agent may have at all."""
FLAT_MB = 15.0
"""By so much more than an agent without a backlog."""
POLL_S = 0.05
WITHIN_S = 1_200 if draw.SOAK else 280
FIGURES = {
    "start": re.compile(r"([\d.]+) s of processor time, resident +([\d.]+) MB, +([\d.]+) at most"),
    "drain": re.compile(r"drained ([\d,]+) of .* ([\d,]+) of processor time; .* ([\d.]+) at most"),
}


def test_an_agent_with_a_backlog(tmp_path: Path) -> None:
    """To a stock broker; each message reaches its subscriber once."""
    got = set[bytes]()
    counts = [0]

    def take(message: Publish) -> None:
        counts[0] += 1
        got.add(message.payload)

    async def drained(agent: AgentProcess, port: int) -> float:
        """The most memory that the agent has had meanwhile."""
        reader = MqttClient(Address(HOST, port), Connect("reader", 5), on_message=take)
        await reader.connect()
        await reader.subscribe(TOPIC, qos=1)
        most_mb = 0.0
        while await asyncio.to_thread(agent.waiting) or len(got) < MESSAGES:
            most_mb = max(most_mb, agent.rss_mb)
            await asyncio.sleep(POLL_S)
        await reader.disconnect()
        return most_mb

    broker = Mosquitto(tmp_path, "allow_anonymous true", "max_queued_messages 0")
    for name in ("empty", "full"):
        (tmp_path / name).mkdir()
    with AgentProcess(tmp_path / "empty", broker.port, free_port()).running() as empty:
        empty_mb = empty.rss_mb
    full = AgentProcess(tmp_path / "full", broker.port, free_port())
    full.fill(MESSAGES, PAYLOAD_BYTES)
    with full.running():
        assert full.cpu_s <= START_S
        assert full.waiting() == MESSAGES
        assert full.rss_mb <= empty_mb + FLAT_MB
        with broker:
            before_s = full.cpu_s
            most_mb = asyncio.run(asyncio.wait_for(drained(full, broker.port), WITHIN_S))
            assert MESSAGES / (full.cpu_s - before_s) >= PER_S
        assert most_mb <= min(RESIDENT_MB, empty_mb + FLAT_MB)
    assert counts[0] == len(got) == MESSAGES


@pytest.mark.parametrize("originator", draw.some(["a", "x"], 1, "whose messages wait"))
def test_a_node_of_the_mesh_with_a_backlog(tmp_path: Path, originator: str) -> None:
    """Its own, or those of `x`, which it claims before it brings them to the gateway. That one answers at once."""
    fill(tmp_path, MESSAGES, PAYLOAD_BYTES, originator)

    def figures(kind: str, module: str) -> list[float]:
        command = [sys.executable, "-m", f"bench.{module}", f"--{kind}", str(tmp_path)]
        said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=WITHIN_S).stdout
        found = FIGURES[kind].search(said)
        assert found is not None, said
        return [float(one.replace(",", "")) for one in found.groups()]

    processor_s, resident_mb, _ = figures("start", "mesh_node")
    assert processor_s <= START_S
    assert resident_mb <= RESIDENT_MB
    count, per_s, most_mb = figures("drain", "mesh_drain")
    assert count == MESSAGES
    assert per_s >= PER_S
    assert most_mb <= RESIDENT_MB
