"""An agent whose disk is full stays up, keeps what it has, and goes on once there is space (M2, M16)."""

import asyncio
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from edge.agent import dispatch as dispatch_module
from edge.agent import relay as relay_module
from edge.agent import way
from edge.agent.agent import Agent
from edge.agent.dispatch import Dispatch
from edge.agent.failures import Failures, OutboxFailures
from edge.agent.inbox_folder import InboxFolder
from edge.agent.mqtt import arrivals as arrivals_module
from edge.agent.mqtt.arrivals import Arrivals
from edge.agent.mqtt.store import Taken
from edge.client.message import IncomingMessage
from edge.client.store import Batch
from mqtt.packets import Publish
from tests.faithful_client import eventually
from tests.unit.edge.agent.agent_harness import HOST, Clock, StockServer, events, inline, settings, submit
from tests.unit.edge.agent.mqtt.mqtt_harness import broker, complete
from tests.unit.edge.agent.mqtt.test_mqtt_exact import outbox
from tests.unit.edge.agent.test_relay import MAIL, Rig
from tests.unit.edge.client.client_harness import NOBODY
from tests.unit.edge.full_disk import full_disk


def incoming(number: int) -> IncomingMessage:
    return IncomingMessage(Publish("t", b"%d" % number, 1, packet_id=number), lambda _: None)


async def is_done(rig: Rig, server: StockServer, running: "asyncio.Task[None]") -> None:
    """The relay goes on, and its mail reaches the server once."""
    await eventually(lambda: rig.store.status()["messages"] == 0, "the mail is done")
    running.cancel()
    await asyncio.wait([running])
    assert len(server.taken) == 1
    rig.store.close()


def test_what_the_platform_has_sent_is_taken_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrivals_module, "AGAIN_S", 0.01)

    async def run() -> None:
        taken: list[bytes] = []

        def take(_: Any, message: Any) -> Taken:
            taken.append(message.payload)
            return Taken(is_new=True, queued=[], live=[])

        async with broker(tmp_path) as agent, outbox(tmp_path) as (client, store):
            there = Arrivals("platform", client, store, agent.changes, take, lambda _: None)
            await there.arrived(incoming(1))
            with full_disk(store) as full:
                running = asyncio.create_task(there.run())
                second = asyncio.create_task(there.arrived(incoming(2)))
                await eventually(lambda: full.failures > 4, "both are tried again")
                assert not second.done()
            await second
            await eventually(lambda: taken == [b"1", b"2"], "the second one is taken")
            running.cancel()
            await asyncio.wait([running])
            assert running.cancelled()

    complete(run())


def test_a_message_that_no_part_takes_waits_to_be_logged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch_module, "AGAIN_S", 0.01)

    async def run() -> None:
        inbox = InboxFolder(None, tmp_path / "list", remembered=10, log_entries=10, wall_s=Clock().wall_s)
        with full_disk(inbox.file) as full:
            refusing = asyncio.create_task(Dispatch(None, inbox, inline).take(incoming(1)))
            await eventually(lambda: full.failures > 2, "it is tried again")
            assert not refusing.done()
        await refusing
        assert events(inbox.file.newest(10)) == [way.REFUSED]
        inbox.close()

    complete(run())


def test_the_mail_servers_answer_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else nobody would look at the mail again until a restart, which would send it once more."""
    monkeypatch.setattr(relay_module, "DISK_FULL_S", 0.01)

    async def run() -> None:
        async with StockServer() as server:
            rig = Rig(tmp_path / "relay", server.port, Clock())
            with ExitStack() as stack:
                disks = []

                def answer() -> str:
                    disks.append(stack.enter_context(full_disk(rig.store.file)))
                    return "250 OK"

                server.data = answer
                await rig.relay.take(MAIL)
                running = asyncio.create_task(rig.relay.run())
                await eventually(lambda: bool(disks) and disks[0].failures > 2, "it is tried again")
            await is_done(rig, server, running)

    complete(run())


def test_an_interrupted_mail_is_looked_at_once_there_is_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent starts on a full disk."""
    monkeypatch.setattr(relay_module, "DISK_FULL_S", 0.01)

    async def run() -> None:
        async with StockServer() as server:
            rig = Rig(tmp_path / "relay", server.port, Clock())
            await rig.relay.take(MAIL)
            rig.store.sending(MAIL.id, MAIL.recipients)
            with full_disk(rig.store.file) as full:
                running = asyncio.create_task(rig.relay.run())
                await eventually(lambda: full.failures > 2, "it is tried again")
            await is_done(rig, server, running)

    complete(run())


def test_mail_for_the_relay_here_is_refused_for_now(tmp_path: Path) -> None:
    async def run() -> None:
        smtp = {
            "submission": {"enabled": True, "port": 0, "hostname": "agent"},
            "relay": {"enabled": True, "host": HOST, "port": 1, "domains": ["b.example"]},
        }
        found = settings(tmp_path, platform={"connect_points": [NOBODY]}, smtp=smtp)
        async with Agent(found) as agent:
            assert agent._relay_store is not None
            with full_disk(agent._relay_store.file):
                error = await submit(agent.submission_port, MAIL.sender, [*MAIL.recipients], MAIL.content)
            assert error.smtp_code == 452
            assert await submit(agent.submission_port, MAIL.sender, [*MAIL.recipients], MAIL.content) == {}

    complete(run())


def test_a_report_about_a_failed_mail_is_tried_again(tmp_path: Path) -> None:
    async def run() -> None:
        told: list[str] = []

        async def report(mail: Any, _: Any) -> str:
            told.append(mail.id)
            return "told"

        async with outbox(tmp_path) as (client, store):
            sent = await client.put(
                Publish("@b", MAIL.content, 1, properties={"user_property": MAIL.properties()}), None
            )
            store.fails(sent.sequence, way.EXPIRED, "too late")
            await client.on_store(lambda found: found.commit(Batch(removed=[sent.sequence])))
            messages = OutboxFailures(client, store)
            with full_disk(store):
                assert not await Failures(messages, report).step()
            assert messages.take_news()
            assert await Failures(messages, report).step()
            assert await messages.first() is None
            assert set(told) == {MAIL.id}

    complete(run())
