"""MQTT clients on both sides of two agent processes, which are killed with SIGKILL again and again (M1, M2, M16, M21).

client ── agent "near" ── mosquitto, as the platform ── agent "far" ── mosquitto, the stock broker ── client
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests import draw
from tests.agent_process import AgentProcess
from tests.faithful_client import FaithfulClient, eventually
from tests.mosquitto import HOST, Mosquitto, free_port
from tests.mqttjs import check, mqttjs, needs_node

__all__ = ["mqttjs"]

MESSAGES = 120
BACKLOG = 500
KILLS = 4
# Mosquitto 2.0.11 may exceed the window of the platform's client when a session with more waiting messages is resumed:
# hence the largest window, and a backlog below it.
NEAR = """
client_id = "near"
[platform]
connect_points = ["mqtt://{host}:{platform}"]
window_messages = 1_000
[mqtt.routes]
"there/#" = "@far"
"js/#" = "local"
"#" = "platform"
[mqtt.listener]
enabled = true
port = {port}
packet_bytes = 400_000
platform_subscriptions = true
"""
FAR = """
client_id = "far"
[platform]
connect_points = ["mqtt://{host}:{platform}"]
window_messages = 1_000
[mqtt.broker]
enabled = true
connect_point = "mqtt://{host}:{broker}"
[mqtt.broker.subscriptions]
"back/#" = "@near"
"""
UNLIMITED = ("allow_anonymous true", "max_queued_messages 0")


class Way(NamedTuple):
    """`port`: of the near agent's listener."""

    near: AgentProcess
    far: AgentProcess
    port: int
    platform: Mosquitto
    broker: Mosquitto

    async def mqtt(self, process: AgentProcess) -> dict[str, Any]:
        status = await asyncio.to_thread(process.status)
        return status["mqtt"]


@contextlib.asynccontextmanager
async def way(tmp_path: Path) -> AsyncIterator[Way]:
    for name in ("platform", "broker"):
        (tmp_path / name).mkdir()
    with (
        Mosquitto(tmp_path / "platform", *UNLIMITED) as platform,
        Mosquitto(tmp_path / "broker", *UNLIMITED) as broker,
    ):
        port = free_port()
        near = AgentProcess(tmp_path / "near", NEAR.format(host=HOST, platform=platform.port, port=port))
        far = AgentProcess(tmp_path / "far", FAR.format(host=HOST, platform=platform.port, broker=broker.port))
        found = Way(near, far, port, platform, broker)
        for process in (far, near):
            await asyncio.to_thread(process.start)
            while not await asyncio.to_thread(process.is_connected):
                await asyncio.sleep(0.02)
        while not (await asyncio.to_thread(far.status))["broker"]["connected"]:
            await asyncio.sleep(0.02)
        try:
            yield found
        except BaseException:
            for process in (near, far):
                await asyncio.to_thread(process.kill)
            raise
        await asyncio.to_thread(near.stop)
        await asyncio.to_thread(far.stop)


def test_killed_again_and_again(tmp_path: Path) -> None:
    """M1, M2, M16, M21: both ways, QoS 2 exactly once and QoS 1 at least once, over any number of kills."""
    choice = draw.generator("kills of agents with MQTT clients")

    async def run() -> None:
        async with way(tmp_path) as found:
            device = FaithfulClient(lambda: found.port, "device")
            server = FaithfulClient(lambda: found.broker.port, "server")
            await device.come()
            await server.come()
            await device.subscribe("back/#", 2)
            await server.subscribe("there/#", 2)

            async def kills() -> None:
                for _ in range(draw.times(KILLS, 40)):
                    await asyncio.sleep(choice.uniform(0.0, 0.3))  # a random moment is what is tested
                    victim = choice.choice([found.near, found.far])
                    await asyncio.to_thread(victim.kill)
                    await asyncio.to_thread(victim.start)

            killing = asyncio.create_task(kills())
            number = 0

            def waiting() -> int:
                return max(2 * number - len(set(client.payloads)) for client in (device, server))

            while not killing.done() or number < MESSAGES:
                if waiting() > BACKLOG:
                    await asyncio.sleep(0.01)
                    continue
                number += 1
                for client, topic in ((device, "there/x"), (server, "back/x")):
                    client.publish(topic, b"%d at 2" % number, 2)
                    client.publish(topic, b"%d at 1" % number, 1)
                await asyncio.sleep(0.01)
            await killing
            await device.published()
            await server.published()
            wanted = {b"%d at %d" % (one, qos) for one in range(1, number + 1) for qos in (1, 2)}
            for sender, receiver in ((device, server), (server, device)):
                await eventually(lambda to=receiver: wanted <= set(to.payloads), f"all reaches {receiver.name}", 60)
                counts = Counter(receiver.payloads)
                repeated = {payload for payload, count in counts.items() if count > 1}
                assert not {payload for payload in repeated if payload.endswith(b"at 2")}
                assert not sender.faults
                assert not receiver.lost_sessions
            for process in (found.near, found.far):
                assert (await found.mqtt(process))["spool"] == 0
            await device.leave()
            await server.leave()

    asyncio.run(asyncio.wait_for(run(), 200))


def test_mosquitto_s_clients_over_both_agents(tmp_path: Path) -> None:
    """M16, M21: mosquitto_pub and mosquitto_sub, unmodified, to the far broker and back, and to the platform."""

    async def run() -> None:
        async with way(tmp_path) as found:

            async def sub(port: int, topic: str, *more: str) -> Awaitable[bytes]:
                """Subscribes; what it gets, once it has got one message."""
                command = ["mosquitto_sub", "-h", HOST, "-p", str(port), "-t", topic, "-C", "1", "-W", "20"]
                process = await asyncio.create_subprocess_exec(
                    *command, "-F", "%t %q %r %p", *more, stdout=asyncio.subprocess.PIPE
                )
                if port == found.port:
                    while not (await found.mqtt(found.near))["subscriptions"]:
                        await asyncio.sleep(0.02)
                else:
                    broker = found.broker if port == found.broker.port else found.platform
                    await eventually(lambda: f"\t{topic} (QoS" in broker.log, "it subscribes")
                return _output(process)

            async def pub(port: int, topic: str, *more: str) -> None:
                command = ["mosquitto_pub", "-h", HOST, "-p", str(port), "-t", topic, *more]
                done = await asyncio.create_subprocess_exec(*command)
                assert await done.wait() == 0

            there = await sub(found.broker.port, "there/#", "-q", "2")
            await pub(found.port, "there/1", "-m", "to the broker", "-q", "2", "-V", "311", "-r")
            assert await there == b"there/1 2 0 to the broker\n"
            kept = await sub(found.broker.port, "there/#", "-q", "1")
            assert await kept == b"there/1 1 1 to the broker\n"
            back = await sub(found.port, "back/#", "-q", "1", "-V", "5")
            await pub(found.broker.port, "back/1", "-m", "from the broker", "-q", "1", "-V", "5")
            assert await back == b"back/1 1 0 from the broker\n"
            plain = await sub(found.platform.port, "plain", "-q", "1")
            await pub(found.port, "plain", "-m", "to the platform", "-q", "1")
            assert await plain == b"plain 1 0 to the platform\n"
            from_there = await sub(found.port, "other", "-q", "1")
            await eventually(lambda: "\tother (QoS 2)" in found.platform.log, "the agent subscribes on the platform")
            await pub(found.platform.port, "other", "-m", "from the platform", "-q", "1")
            assert await from_there == b"other 1 0 from the platform\n"
            await eventually(lambda: "Received UNSUBSCRIBE from near" in found.platform.log, "the agent unsubscribes")

    asyncio.run(asyncio.wait_for(run(), 100))


async def _output(process: asyncio.subprocess.Process) -> bytes:
    return (await process.communicate())[0]


@needs_node
@pytest.mark.parametrize("version", ["4", "5"], ids=["3.1.1", "5"])
def test_mqttjs(tmp_path: Path, mqttjs: Path, version: str) -> None:
    """M16: MQTT.js, unmodified: each QoS, a large message, a retained one, and what it missed."""

    async def run() -> None:
        near = AgentProcess(tmp_path / "near", NEAR.format(host=HOST, platform=1, port=(port := free_port())))
        await asyncio.to_thread(near.start)
        await asyncio.to_thread(check, mqttjs, f"mqtt://{HOST}:{port}", version)
        await asyncio.to_thread(near.stop)

    asyncio.run(asyncio.wait_for(run(), 100))
