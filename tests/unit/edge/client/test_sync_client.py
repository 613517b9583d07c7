"""The client for programs without asyncio."""

import threading
from pathlib import Path

import pytest

from edge.client.errors import ClientClosed, LifetimeNotAllowed, NoReply, StoreInUse
from edge.client.message import IncomingMessage, MessageState
from edge.client.sync_client import SyncClient
from edge.reconnect import FullJitter
from tests.unit.gateway.host.socket_gateway import HOST, SocketGateway
from tests.waiting import wait_for


def client(gateway: SocketGateway, name: str, store: Path | None = None) -> SyncClient:
    points = [f"mqtt://{HOST}:{gateway.mqtt_port}"]
    return SyncClient(client_id=name, connect_points=points, store=store, backoff=FullJitter(0.01, 0.02))


def test_publish_subscribe_and_request(gateway: SocketGateway, tmp_path: Path) -> None:
    with client(gateway, "sync", tmp_path / "o") as one, client(gateway, "sync-answerer") as answerer:
        one.connected()
        assert one.subscribe("sync/#", qos=1) == [1]
        message = one.publish("sync/x", "hello", qos=2)
        message.wait(20)
        assert message.state is MessageState.ACKNOWLEDGED
        assert (message.topic, message.sequence) == ("sync/x", 1)
        for got in one.messages():
            assert got.payload == b"hello"
            got.acknowledge()
            break

        def answer(question: IncomingMessage) -> None:
            if question.response_topic is not None:
                answerer.reply(question, question.payload.upper())

        answerer.on_message(answer)
        assert one.request("@sync-answerer", "hello", timeout_s=20).payload == b"HELLO"
        with pytest.raises(NoReply):
            one.request("@nobody", timeout_s=0.2)
        for reply in one.request_all("@sync-answerer", "hello", timeout_s=60):
            assert reply.payload == b"HELLO"
            break
        assert list(one.request_all("@nobody", timeout_s=0.2)) == []
        with pytest.raises(LifetimeNotAllowed):
            one.publish("sync/x", lifetime_s=0)
        one.send("sync-answerer", b"").wait(20)
        one.unsubscribe("sync/#")
        one.drained()
    with pytest.raises(ClientClosed):
        one.publish("sync/x")
    one.close()


def test_threads_share_a_client(gateway: SocketGateway, tmp_path: Path) -> None:
    got: list[bytes] = []

    def take(message: IncomingMessage) -> None:
        got.append(message.payload)

    with client(gateway, "shared", tmp_path / "o") as one:
        one.subscribe("shared", qos=2)
        one.on_message(take)

        def publish(start: int) -> None:
            for number in range(start, start + 20):
                one.publish("shared", b"%d" % number, qos=2)

        threads = [threading.Thread(target=publish, args=(100 * n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        wait_for(lambda: len(got) == 80, "everything arrives")
    assert sorted(map(int, got)) == [100 * n + m for n in range(4) for m in range(20)]


def test_what_cannot_be_opened(gateway: SocketGateway, tmp_path: Path) -> None:
    with client(gateway, "one", tmp_path / "o"), pytest.raises(StoreInUse):
        client(gateway, "one", tmp_path / "o")
    ours = ("waystation-client", "waystation-outbox")
    wait_for(lambda: not any(thread.name.startswith(ours) for thread in threading.enumerate()), "no thread is left")
