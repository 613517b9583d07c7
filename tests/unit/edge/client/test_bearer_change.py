"""A client that changes its bearer from MQTT to HTTP and back: no later message is taken for an earlier one (G8)."""

import copy
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from edge.client.client import Client
from edge.client.errors import StoreError, StoreFailed
from edge.client.memory_store import MemoryStore
from edge.client.sqlite_store import SqliteStore
from edge.client.store import Batch, SessionRow, Store
from edge.errors import PublishRefused
from gateway.host.listeners import Listeners
from tests.faithful_client import eventually
from tests.unit.edge.client.client_harness import NOBODY, client
from tests.unit.edge.client.server_host import ServerHost
from tests.unit.gateway.host.socket_gateway import HOST
from tests.unit.gateway.http.http_harness import HttpHarness, run

NO_HTTP = f"http://{HOST}:1"
NO_KAFKA = f"kafka://{HOST}:1"


class CutStore(MemoryStore):
    """Its process is killed at the commit that records a PUBREC, before it or right after it; or never."""

    cut: str | None = None

    def commit(self, batch: Batch) -> None:
        is_cut = bool(batch.released) and self.cut is not None
        if not (is_cut and self.cut == "before"):
            super().commit(copy.deepcopy(batch))
        if is_cut:
            raise StoreFailed("killed")


@asynccontextmanager
async def gateway_of_both(directory: Path) -> AsyncIterator[tuple[HttpHarness, str, str]]:
    """A gateway, and its URLs for MQTT and HTTP."""
    harness = await HttpHarness(directory).start()
    settings = msgspec.structs.replace(harness.settings().gateway, host=HOST, mqtt_port=0, websocket_port=0)
    listeners = await Listeners.open(harness.hosts, settings, None)
    try:
        yield harness, f"mqtt://{HOST}:{listeners.mqtt_port}", f"http://{HOST}:{harness.port}"
    finally:
        listeners.close()
        await harness.hosts.stop()
        await listeners.closed()


async def killed_at_pubrec(url: str, store: CutStore, cut: str, payload: bytes = b"first") -> int:
    """A process sends a QoS 2 message over MQTT, and is killed when PUBREC comes; returns the packet id."""
    store.cut = cut
    with pytest.raises(StoreError):
        async with client(url, store=store) as van:
            await (await van.publish("t", payload, qos=2)).acknowledged
    store.cut = None
    (message,) = store.recover().in_flight
    return message.packet_id


def come_round(store: MemoryStore, packet_id: int) -> None:
    """As if so many messages had been sent since that this packet id is the next one."""
    store.recover().session.last_packet_id = packet_id - 1 or 65_535


def number_of(van: Client) -> int:
    """The packet id of the one message in flight."""
    (packet_id,) = van._bearer.in_flight.by_id
    return packet_id


@pytest.mark.parametrize("cut", ["before", "after"])
@pytest.mark.parametrize("version", ["3.1.1", "5.0"])
def test_a_later_message_is_not_taken_for_one_that_http_has_completed(tmp_path: Path, cut: str, version: str) -> None:
    """The gateway keeps the packet id of a QoS 2 message as received until PUBREL, whoever has completed it. So it is
    each time that the bearer changes."""

    async def scenario() -> None:
        store = CutStore("van-7")
        async with gateway_of_both(tmp_path) as (harness, mqtt, http):
            for number in (b"1", b"2"):
                packet_id = await killed_at_pubrec(mqtt, store, cut, b"first " + number)
                async with client(http, store=store) as van:
                    await van.drained()
                    await (await van.publish("t", b"over http " + number, qos=2)).acknowledged
                come_round(store, packet_id)
                async with client(mqtt, store=store, mqtt_version=version) as back:
                    assert back.usage == (0, 0)
                    await back.drained()
                    for payload in (b"later ", b"last "):
                        await (await back.publish("t", payload + number, qos=2)).acknowledged
                assert store.recover().open_ids == []
            payloads = [payload for _, payload in await harness.stored()]
            assert {b"first 1", b"first 2"} < set(payloads)
            for name in (b"over http ", b"later ", b"last "):
                assert payloads.count(name + b"1") == payloads.count(name + b"2") == 1

    run(scenario())


def test_no_bearer_gives_an_open_packet_id_to_another_message(tmp_path: Path) -> None:
    """What HTTP has numbered may be sent over MQTT under the same number."""

    async def scenario() -> None:
        store = CutStore("van-7")
        async with gateway_of_both(tmp_path / "g") as (harness, mqtt, http):
            packet_id = await killed_at_pubrec(mqtt, store, "after")
            come_round(store, packet_id)
            async with client(http, store=store) as van:
                await van.connected()
                harness.bus.held_acks = {harness.topics.ingress}
                await van.publish("t", b"second", qos=2)
                await eventually(lambda: harness.bus.in_flight == 1, "it is on the way")
                assert number_of(van) != packet_id
                harness.bus.held_acks = set()
        assert store.recover().open_ids == [packet_id]

    run(scenario())


@pytest.mark.parametrize("cut", ["before", "after"])
def test_exchanges_of_a_session_that_is_lost_are_forgotten(tmp_path: Path, cut: str) -> None:
    async def scenario() -> None:
        store = CutStore("van-7")
        harness = await HttpHarness(tmp_path).start()
        async with ServerHost() as server:
            packet_id = await killed_at_pubrec(server.url, store, cut)
            async with client(f"http://{HOST}:{harness.port}", store=store) as van:
                await van.drained()
            assert store.recover().open_ids == [packet_id]
            server.session.forget()
            async with client(server.url, store=store) as back:
                await back.connected()
            assert store.recover().open_ids == []

    run(scenario())


def test_a_message_in_flight_keeps_its_packet_id_over_both_changes(tmp_path: Path) -> None:
    """HTTP has never reached a gateway, nor has MQTT at first: the server sees the message again, and then its end."""

    async def scenario() -> None:
        store = CutStore("van-7")
        async with ServerHost() as server:
            packet_id = await killed_at_pubrec(server.url, store, "before")
            async with client(NO_HTTP, store=store):
                pass
            server.is_deaf, before = True, server.connections
            async with client(server.url, store=store):
                await eventually(lambda: server.connections > before, "it has sent CONNECT")
            assert store.recover().open_ids == [packet_id]
            server.is_deaf = False
            async with client(server.url, store=store) as back:
                await back.drained()
                await (await back.publish("t", b"later", qos=2)).acknowledged
            assert [packet.payload for packet in server.session.stored] == [b"first", b"later"]
            assert server.session.is_idle
            assert store.recover().open_ids == []

    run(scenario())


def test_only_what_mqtt_has_sent_is_kept(tmp_path: Path) -> None:
    """However often the bearer changes without a connection over MQTT."""

    async def scenario() -> None:
        store = CutStore("van-7")
        async with gateway_of_both(tmp_path) as (harness, mqtt, http):
            packet_id = await killed_at_pubrec(mqtt, store, "after")
            async with client(http, store=store) as van:
                await van.connected()
                harness.bus.held_acks = {harness.topics.ingress}
                await van.publish("t", b"second", qos=2)
                await eventually(lambda: harness.bus.in_flight == 1, "it is on the way")
            for url in (NO_HTTP, NOBODY, NO_KAFKA, NOBODY, NO_HTTP):
                async with client(url, store=store) as van:
                    assert van.usage[0] == 1
                assert store.recover().open_ids == [packet_id]
            harness.bus.held_acks = set()

    run(scenario())


def of_an_earlier_version(path: Path) -> Store:
    """A file as it was before open exchanges were kept."""
    store = SqliteStore(path, "van-7")
    store._db.execute("DROP TABLE open_exchange")
    store._db.execute("ALTER TABLE session DROP COLUMN is_taken_over")
    store.close()
    return SqliteStore(path, "van-7")


def on_disk(path: Path) -> Store:
    return SqliteStore(path, "van-7")


@pytest.mark.parametrize("opened", [of_an_earlier_version, on_disk])
def test_files_keep_open_exchanges(tmp_path: Path, opened: Callable[[Path], Store]) -> None:
    path = tmp_path / "o"
    on_disk(path).close()
    store = opened(path)
    assert store.recover().open_ids == []
    assert not store.recover().session.is_taken_over
    session = SessionRow("van-7", True, is_taken_over=True)
    store.commit(Batch(open_ids={7: True, 3: True, 5: True}, session=session))
    store.commit(Batch(open_ids={3: False, 7: True}))
    store.close()
    store = on_disk(path)
    assert store.recover().open_ids == [7, 5]
    assert store.recover().session == session
    store.close()


def test_an_exchange_whose_message_the_server_no_longer_takes_is_ended() -> None:
    """Its message is refused, and its packet id is free only once the server has forgotten it, over a restart too."""

    async def scenario() -> None:
        store = MemoryStore("van-7")
        async with ServerHost() as server:
            server.drop_at = {2, 4}  # the answers to PUBLISH and PUBREL are lost
            async with client(server.url, store=store) as van:
                await van.connected()
                server.session.connack = {"maximum_packet_size": 100}
                with pytest.raises(PublishRefused):
                    await (await van.publish("t", bytes(200), qos=2)).acknowledged
                server.is_closed = True
                await eventually(lambda: server.reads == 4, "PUBREL has come")
            assert len(store.recover().open_ids) == 1
            server.is_closed = False
            async with client(server.url, store=store):
                await eventually(lambda: not store.recover().open_ids, "it is over")
            assert server.session.is_idle

    run(scenario())
