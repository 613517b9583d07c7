"""Messages between the stand-in's file and a client's: none lost or repeated, whatever a kill interrupts (M2, M16)."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from edge.agent.mqtt.arrivals import Arrivals
from edge.agent.mqtt.exact_store import ExactStore
from edge.agent.mqtt.forwarding import ClientTransport, Forwarder, Refused, to_broker, to_platform
from edge.agent.mqtt.hub import ONWARD
from edge.agent.mqtt.message import MqttMessage
from edge.agent.mqtt.store import MqttStore, Spooled, Taken
from edge.client.client import Client
from edge.client.errors import DiskFull, StoreFailed, StoreFull
from edge.client.limits import Limits
from edge.client.message import IncomingMessage
from mqtt.packets import Publish
from tests.faithful_client import eventually
from tests.unit.edge.agent.mqtt.mqtt_harness import Broker, broker, complete
from tests.unit.edge.client.client_harness import NOBODY, client
from tests.unit.edge.client.server_host import ServerHost


def numbered(number: int, payload: bytes = b"x", **more: object) -> MqttMessage:
    return MqttMessage(f"{number:032x}", "far/x", payload, 1, **more)  # type: ignore[arg-type]


def spooled(number: int, payload: bytes = b"x", lifetime_s: int | None = None) -> Spooled:
    return Spooled(7, number, "@far", numbered(number, payload, lifetime_s=lifetime_s), None)


@asynccontextmanager
async def outbox(path: Path, url: str = NOBODY, **limits: int) -> AsyncIterator[tuple[Client, ExactStore]]:
    """A client whose store passes messages exactly."""
    opened: list[ExactStore] = []

    def open_store() -> ExactStore:
        opened.append(ExactStore(path / "outbox", "van-7", 100))
        return opened[0]

    async with client(url, store=open_store, limits=Limits(**limits)) as found:
        yield found, opened[0]


def transport(found: Client, store: ExactStore) -> ClientTransport:
    return ClientTransport(found, store, lambda one: to_platform(one, ""), 1_000.0)


def test_what_the_outbox_has_is_not_sent_to_it_again(tmp_path: Path) -> None:
    """The spool is behind after a kill: the outbox knows what it has."""

    async def run() -> None:
        messages = [spooled(number) for number in range(1, 6)]
        async with outbox(tmp_path) as (found, store):
            assert await transport(found, store).send(messages[:3], {}) == 3
            steps = await found.on_store(lambda _: store.steps_of(messages[0].message.id))
            assert steps == []  # the spool's log says that it was accepted
        async with outbox(tmp_path) as (found, store):
            there = transport(found, store)
            assert await there.send(messages, {}) == 5
            assert found.usage[0] == 5
            assert await there.send(messages[5:], {}) == 0

    complete(run())


def test_a_spool_in_a_new_file_is_taken_from_its_beginning(tmp_path: Path) -> None:
    """M2: the stand-in's file was moved away, as the error for a damaged one advises, and its numbers begin again. The
    numbers of two files never mix, also over restarts."""

    async def move_on(directory: Path, first: int) -> None:
        directory.mkdir(exist_ok=True)
        async with broker(directory) as agent, outbox(tmp_path) as (found, store):
            for number in range(first, first + 3):
                message = numbered(number)
                await agent.changes.make(lambda store, message=message: store.take(message, spool=((ONWARD, "@far"),)))
            rows = await agent.spool()
            assert await transport(found, store).send(rows, {}) == len(rows)

    async def waiting() -> int:
        async with outbox(tmp_path) as (found, _):
            return found.usage[0]

    async def run() -> None:
        await move_on(tmp_path / "one", 1)
        await move_on(tmp_path / "two", 4)
        assert await waiting() == 6
        await move_on(tmp_path / "two", 7)  # the spool is behind: it has the first three yet
        assert await waiting() == 9

    complete(run())


def test_a_full_outbox_takes_a_beginning(tmp_path: Path) -> None:
    """In order: a small message behind a large one does not overtake it, or the position would pass the large one."""

    async def run() -> None:
        large = spooled(2, bytes(5_000))
        async with outbox(tmp_path, total_bytes=2_000) as (found, store):
            assert await transport(found, store).send([spooled(1), large, spooled(3)], {}) == 1
        async with outbox(tmp_path, total_bytes=9_000, message_bytes=1_000) as (found, store):
            refused: Refused = {}
            assert await transport(found, store).send([spooled(1), large, spooled(3)], refused) == 3
            assert list(refused) == [large.message.id]
            assert found.usage[0] == 2

    complete(run())


def test_a_full_disk_takes_none_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        async with outbox(tmp_path) as (found, store):
            commit = store.commit

            def full(batch: object) -> None:
                raise DiskFull("full")

            monkeypatch.setattr(store, "commit", full)
            there, messages = transport(found, store), [spooled(1), spooled(2)]
            assert await there.send(messages, {}) == 0
            monkeypatch.setattr(store, "commit", commit)
            assert await there.send(messages, {}) == 2
            assert found.usage[0] == 2

    complete(run())


class Recorder:
    """A transport that takes one message at a time, and none of those in `stuck`."""

    def __init__(self) -> None:
        self.taken: list[str] = []

    async def send(self, messages: list[Spooled], refused: Refused) -> int:
        self.taken.append(messages[0].message.id)
        return 1

    async def position(self, spool: int) -> int:
        return 0


def test_the_forwarder_empties_the_spool_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over any transport; what has expired is not sent, and is in the log."""
    monkeypatch.setattr("edge.agent.mqtt.forwarding.AGAIN_S", 0.0)

    async def run() -> None:
        async with broker(tmp_path) as agent:
            recorder, news = Recorder(), asyncio.Event()
            for number in range(1, 6):
                message = numbered(number, lifetime_s=5 if number == 3 else None)
                await agent.changes.make(lambda store, message=message: store.take(message, spool=((ONWARD, "@far"),)))
            agent.clock.now_s += 10
            running = asyncio.create_task(Forwarder(ONWARD, agent.changes, recorder, news).run())
            await eventually(lambda: len(recorder.taken) == 4, "all are sent")
            assert recorder.taken == [f"{number:032x}" for number in (1, 2, 4, 5)]
            while await agent.spool():
                await asyncio.sleep(0)
            [*_, last] = await agent.changes.make(lambda store: store.steps_of(f"{3:032x}"))
            assert (last.part, last.event) == (ONWARD, "expired")
            assert (await agent.changes.make(MqttStore.status))["spool_bytes"] == 0
            running.cancel()

    complete(run())


def arrivals(agent: Broker, found: Client, store: ExactStore) -> Arrivals:
    def take(file: MqttStore, message: MqttMessage) -> Taken:
        return file.take(message, spool=((ONWARD, "@far"),), is_local=False)

    return Arrivals("broker", found, store, agent.changes, take, lambda _: None)


@pytest.mark.parametrize("qos", [1, 2])
def test_what_a_server_was_answered_for_arrives_once(tmp_path: Path, qos: int) -> None:
    """The client is ended after its answer and before the stand-in's file has the message; then after that, and before
    the client's file forgets it."""

    async def run() -> None:
        async with ServerHost() as server, broker(tmp_path) as agent:
            async with outbox(tmp_path, server.url) as (found, store):
                there = arrivals(agent, found, store)
                await found.connected()
                for number in range(3):
                    server.deliver("far/x", b"%d" % number, qos)
                    message = await anext(found.messages())
                    await there.arrived(message)
                    message.acknowledge()
                await eventually(
                    lambda: not (server.session._in_flight or server.session._released), "the server has its answers"
                )
            async with outbox(tmp_path) as (found, store):
                kept = store.forget_arrived
                store.forget_arrived = lambda number: None  # type: ignore[method-assign]
                running = asyncio.create_task(arrivals(agent, found, store).run())
                while len(await agent.spool()) < 3:
                    await asyncio.sleep(0.01)
                running.cancel()
                store.forget_arrived = kept  # type: ignore[method-assign]
            async with outbox(tmp_path) as (found, store):
                running = asyncio.create_task(arrivals(agent, found, store).run())
                for _ in range(5):
                    await found.on_store(lambda _: None)
                payloads = [row.message.payload for row in await agent.spool()]
                assert payloads == [b"0", b"1", b"2"]
                running.cancel()

    complete(run())


def test_what_arrives_in_a_new_outbox_is_taken_from_its_beginning(tmp_path: Path) -> None:
    """M2: the outbox was moved away, as the error for a damaged one advises. What was acknowledged is taken."""

    async def take(directory: Path, payloads: list[bytes], expected: int) -> None:
        directory.mkdir()
        async with broker(tmp_path) as agent, outbox(directory) as (found, store):
            there = arrivals(agent, found, store)
            for payload in payloads:
                await there.arrived(IncomingMessage(Publish("far/x", payload, 1, packet_id=1), lambda _: None))
            running = asyncio.create_task(there.run())
            while await found.on_store(lambda _: store.arrived(0, 9)):
                await asyncio.sleep(0.01)
            running.cancel()
            assert len(await agent.spool()) == expected

    async def run() -> None:
        await take(tmp_path / "one", [b"1", b"2", b"3", b"4", b"5"], 5)
        await take(tmp_path / "two", [b"6", b"7", b"8"], 8)

    complete(run())


def test_arrivals_wait_for_space_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edge.agent.mqtt.arrivals.AGAIN_S", 0.01)

    async def run() -> None:
        async with (
            ServerHost() as server,
            broker(tmp_path, messages=1) as agent,
            outbox(tmp_path, server.url) as (found, store),
        ):
            there = arrivals(agent, found, store)
            running = asyncio.create_task(there.run())
            await found.connected()
            for number in range(3):
                server.deliver("far/x", b"%d" % number, 1 + number % 2)
                message = await anext(found.messages())
                await there.arrived(message)
                message.acknowledge()
            for number in range(3):
                while not (rows := await agent.spool()):
                    await asyncio.sleep(0.01)
                assert [row.message.payload for row in rows] == [b"%d" % number]
                await agent.changes.make(lambda s, upto=rows[0].number: s.forwarded(ONWARD, upto, []))
            running.cancel()

    complete(run())


def test_a_change_that_fails_undoes_itself_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        async with broker(tmp_path, messages=2) as agent:

            def take(number: int, *, lanes: int = 1) -> "asyncio.Future[Taken]":
                spool = (("lane", "@far"),) * lanes
                return agent.changes.make(lambda store: store.take(numbered(number), recognise=True, spool=spool))

            results = await asyncio.gather(take(1), take(2, lanes=2), take(1), take(3), return_exceptions=True)
            assert [type(result) for result in results] == [Taken, StoreFull, Taken, Taken]
            assert [result.is_new for result in results if isinstance(result, Taken)] == [True, False, True]
            rows = await agent.changes.make(lambda store: store.spooled("lane", 0, 10))
            assert [row.message.id for row in rows] == [f"{number:032x}" for number in (1, 3)]
            await agent.changes.make(lambda store: store.forwarded("lane", rows[-1].number, []))

            def full(store: MqttStore) -> None:
                raise DiskFull("full")

            monkeypatch.setattr(MqttStore, "save_clock", full)
            with pytest.raises(DiskFull):
                await take(2)
            monkeypatch.undo()
            assert (await take(2)).is_new

    complete(run())


def test_to_a_broker_a_message_goes_as_it_was() -> None:
    message = MqttMessage("0" * 32, "far/x", b"x", 0, True, {"content_type": "text/plain"}, 9)
    packet = to_broker(Spooled(7, 1, "", message, None))
    assert (packet.topic, packet.payload, packet.qos, packet.retain) == ("far/x", b"x", 2, True)
    assert packet.properties == {"content_type": "text/plain", "message_expiry_interval": 9}


def test_a_disk_that_cannot_be_read_is_an_error_of_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever reads handles those, and not SQLite's."""

    class Broken:
        def execute(self, *_: object) -> None:
            raise sqlite3.OperationalError("disk I/O error")

    store = ExactStore(tmp_path / "outbox", "van-7", 100)
    reads: list[Callable[[], object]] = [
        lambda: store.position(1),
        lambda: store.arrived(0, 10),
        store.first_failed,
        lambda: store.newest(10),
        lambda: store.steps_of("x"),
    ]
    with monkeypatch.context() as patch:
        patch.setattr(store, "_db", Broken())
        for read in reads:
            with pytest.raises(StoreFailed, match="outbox cannot be read or written: disk I/O error"):
                read()
    store.close()
