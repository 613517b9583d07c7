"""One of the agent's files is put back from a backup: what it then gives used numbers to is not lost (M2, M16)."""

import asyncio
import shutil
from pathlib import Path

from edge.agent.mqtt.forwarding import Forwarder
from edge.agent.mqtt.hub import ONWARD
from edge.client.message import IncomingMessage
from mqtt.packets import Publish
from tests.unit.edge.agent.mqtt.mqtt_harness import broker, complete
from tests.unit.edge.agent.mqtt.test_mqtt_exact import arrivals, numbered, outbox, transport


def put_back(path: Path) -> None:
    shutil.copy(path.with_name("backup"), path)
    path.with_name(f"{path.name}-wal").unlink(missing_ok=True)


def test_the_file_of_mqtt_messages_is_put_back(tmp_path: Path) -> None:
    """What clients hand in afterwards, and have an acknowledgement for, goes on: also after another restart."""

    async def hand_in(*numbers: int) -> set[str]:
        """Which messages the outbox has when the spool is empty."""
        async with broker(tmp_path) as agent, outbox(tmp_path) as (found, store):
            for number in numbers:
                message = numbered(number)
                await agent.changes.make(lambda store, message=message: store.take(message, spool=((ONWARD, "@far"),)))
            news = asyncio.Event()
            running = asyncio.create_task(Forwarder(ONWARD, agent.changes, transport(found, store), news).run())
            while await agent.spool():
                await asyncio.sleep(0.01)
            running.cancel()
            rows = await found.on_store(lambda _: store._db.execute("SELECT id FROM forwarded_id").fetchall())
        return {identifier for (identifier,) in rows}

    async def run() -> None:
        await hand_in(1, 2)
        shutil.copy(tmp_path / "mqtt", tmp_path / "backup")
        await hand_in(3, 4, 5, 6)
        put_back(tmp_path / "mqtt")
        assert f"{7:032x}" in await hand_in(7)
        assert f"{8:032x}" in await hand_in(8)

    complete(run())


def test_the_outbox_is_put_back(tmp_path: Path) -> None:
    """What the platform sends afterwards, and has an acknowledgement for, is taken: also after a restart."""

    async def arrive(*payloads: bytes, is_killed: bool = False) -> list[bytes]:
        """What the spool has then."""
        async with broker(tmp_path) as agent, outbox(tmp_path) as (found, store):
            there = arrivals(agent, found, store)
            running = asyncio.create_task(there.run())
            if is_killed:
                await agent.changes.make(lambda _: None)
                while await agent.changes.make(lambda file: file.position("broker", store.incarnation)):
                    await asyncio.sleep(0.01)
                running.cancel()
                await asyncio.wait([running])
            for payload in payloads:
                await there.arrived(IncomingMessage(Publish("far/x", payload, 1, packet_id=1), lambda _: None))
            while not is_killed and await found.on_store(lambda _: store.arrived(0, 9)):
                await asyncio.sleep(0.01)
            running.cancel()
            return [row.message.payload for row in await agent.spool()]

    async def run() -> None:
        await arrive(b"1")
        shutil.copy(tmp_path / "outbox", tmp_path / "backup")
        await arrive(b"2", b"3", b"4", b"5")
        put_back(tmp_path / "outbox")
        assert await arrive(b"6", b"7", b"8", b"9", b"10", is_killed=True) == [b"1", b"2", b"3", b"4", b"5"]
        assert await arrive() == [b"%d" % number for number in range(1, 11)]

    complete(run())
