"""Two agent processes with mosquitto between them, killed with SIGKILL again and again (M1, M2, M16, M21).

Programs submit mail with the standard library's client; at the far side stands a stock server. Every mail that was
answered with 250 arrives; more than once only as often as the far agent counts it as doubtful.
"""

import asyncio
import contextlib
import json
import re
import signal
import smtplib
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from edge.agent import control
from tests import draw
from tests.agent_process import AgentProcess
from tests.documents import ROOT
from tests.faithful_client import eventually
from tests.mosquitto import HOST, Mosquitto, free_port
from tests.unit.edge.agent.agent_harness import StockServer

MAILS = 60
KILLS = 6
NEAR = """
client_id = "near"
[platform]
connect_points = ["mqtt://{host}:{broker}"]
[smtp.routes]
"b.example" = "far"
[smtp.submission]
enabled = true
port = {port}
hostname = "near"
[folders]
enabled = true
rescan_s = 0.05
[folders.outboxes]
"out" = "@far"
"""
# Mosquitto 2.0.11 may exceed a window of 100 when a session with more waiting messages is resumed.
FAR = """
client_id = "far"
[platform]
connect_points = ["mqtt://{host}:{broker}"]
window_messages = 1_000
[smtp.relay]
enabled = true
port = {port}
domains = ["b.example"]
hostname = "far"
retry_first_s = 0.1
retry_most_s = 0.2
[folders]
enabled = true
inbox = "in"
"""


@contextlib.asynccontextmanager
async def both(tmp_path: Path, broker: Mosquitto, server: StockServer, port: int) -> AsyncIterator[list[AgentProcess]]:
    near = AgentProcess(tmp_path / "near", NEAR.format(host=HOST, broker=broker.port, port=port))
    far = AgentProcess(tmp_path / "far", FAR.format(host=HOST, broker=broker.port, port=server.port))
    await asyncio.to_thread(far.start)
    while not (await asyncio.to_thread(far.status))["connected"]:
        await asyncio.sleep(0.05)
    await asyncio.to_thread(near.start)
    yield [near, far]
    await asyncio.to_thread(near.stop)
    await asyncio.to_thread(far.stop)


def submit(port: int, number: int) -> bool:
    """Whether the mail was answered with 250."""
    try:
        with smtplib.SMTP(HOST, port, timeout=20) as client:
            client.sendmail("ann@a.example", ["bob@b.example"], b"X-Number: %d\r\n\r\n.\r\n" % number)
    except (OSError, smtplib.SMTPException):
        return False
    return True


def test_killed_again_and_again(tmp_path: Path) -> None:
    choice = draw.generator("kills of agents")

    async def run(broker: Mosquitto) -> None:
        port = free_port()
        async with StockServer() as server, both(tmp_path, broker, server, port) as processes:
            loop, accepted = asyncio.get_running_loop(), set[int]()

            async def kills() -> None:
                for _ in range(KILLS):
                    await asyncio.sleep(choice.uniform(0.0, 0.3))  # a random moment is what is tested
                    victim = choice.choice(processes)
                    await asyncio.to_thread(victim.kill)
                    await asyncio.to_thread(victim.start)

            killing = asyncio.create_task(kills())
            number = attempt = 0
            outbox = tmp_path / "near" / "out"
            while not killing.done() or number < MAILS:
                attempt += 1  # one whose answer is lost may have been accepted, so it is not submitted again
                if not await loop.run_in_executor(None, submit, port, attempt):
                    await asyncio.sleep(0.02)
                    continue
                accepted.add(attempt)
                number += 1
                (outbox / f".{number}").write_text(str(number))
                (outbox / f".{number}").rename(outbox / str(number))
            await killing
            assert accepted

            def arrived() -> Counter[int]:
                found = (re.match(rb"X-Number: (\d+)", content) for _, _, content in server.taken)
                return Counter(int(one[1]) for one in found if one is not None)

            await eventually(lambda: accepted <= arrived().keys(), "every accepted mail arrives", 60)
            inbox = tmp_path / "far" / "in"
            await eventually(lambda: len(list(inbox.glob("[!.]*"))) == number, "every file arrives", 30)
            status = (await asyncio.to_thread(processes[1].status))["relay"]
            repeated = sum(arrived().values()) - len(arrived())
            assert repeated <= status.get("doubtful_in_all", 0)
            contents = sorted(int(path.read_text()) for path in inbox.glob("[!.]*"))
            assert contents == list(range(1, number + 1))

    with Mosquitto(tmp_path, "allow_anonymous true", "max_queued_messages 0") as broker:
        asyncio.run(asyncio.wait_for(run(broker), 200))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_ends_cleanly_and_answers_on_the_command_line(tmp_path: Path, number: signal.Signals) -> None:
    with Mosquitto(tmp_path) as broker:
        near = AgentProcess(tmp_path / "near", NEAR.format(host=HOST, broker=broker.port, port=0))
        near.start()
        command = [sys.executable, "-m", "edge.cli.main", "agent", "status", "--json", "--conf"]
        asked = subprocess.run(
            [*command, str(near.directory / "agent.toml")], cwd=ROOT, capture_output=True, timeout=60
        )
        assert json.loads(asked.stdout)["client_id"] == "near"
        assert near.signal(number) == 0
        assert not (near.directory / "agent" / control.NAME).exists()
