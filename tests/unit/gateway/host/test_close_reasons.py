"""Why a connection ended: metrics and presence say it in one word (R12)."""

from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.host.host_server import HostServer
from gateway.shard.arrivals import LOST_CONNECTING
from mqtt.codes import ReasonCode
from mqtt.packets import Disconnect, Pingreq, Subscribe, Subscription, Will
from tests.unit.gateway.host.test_host_connection import Wire, connect, hosted
from tests.unit.gateway.shard.home_harness import HomeHarness, turn
from tests.unit.gateway.shard.virtual_time import run


def ends(server: HostServer) -> dict[str, int]:
    return {name.removeprefix("closed_"): n for name, n in server.counts.items() if name.startswith("closed_")}


def last_presence(harness: HomeHarness) -> tuple[str, str | None]:
    event = harness.presence("c")[-1]
    return event.event, event.reason


@pytest.mark.parametrize(
    ("end", "event", "word"),
    [
        (lambda wire: wire.send(Disconnect()), "disconnected", "normal_disconnection"),
        (
            lambda wire: wire.send(Disconnect(ReasonCode.DISCONNECT_WITH_WILL_MESSAGE)),
            "disconnected",
            "disconnect_with_will",
        ),
        (lambda wire: wire.send(Disconnect(ReasonCode.UNSPECIFIED_ERROR)), "disconnected", "disconnect_with_will"),
        (lambda wire: wire.lose(), "lost", "connection_lost"),
        (lambda wire: wire.connection.data_received(b"\x00\x00"), "lost", "malformed_packet"),
        (lambda wire: wire.send(connect("c")), "lost", "protocol_error"),
        (lambda wire: wire.connection.disconnect(ReasonCode.SESSION_TAKEN_OVER), "lost", "session_taken_over"),
    ],
)
@pytest.mark.parametrize("will", [Will("w", b"gone"), None])
def test_metrics_and_presence_say_the_same(
    tmp_path: Path, end: Callable[[Wire], object], event: str, word: str, will: Will | None
) -> None:
    """R12: the transport's own end, which follows, changes nothing."""

    async def scenario() -> None:
        harness, server = await hosted(tmp_path)
        wire = Wire(server).send(connect("c", will=will))
        await turn()
        end(wire)
        await turn()
        wire.lose()
        await turn()
        assert ends(server) == {word: 1}
        assert last_presence(harness) == (event, word)
        assert bool(harness.ids_of(b"gone")) == (will is not None and word != "normal_disconnection")
        assert not harness.fatal
        await server.stop()

    run(scenario())


def test_a_silent_client_and_a_stopping_gateway(tmp_path: Path) -> None:
    async def scenario() -> None:
        harness, server = await hosted(tmp_path)
        Wire(server).send(connect("c", keep_alive=2))
        await turn(60)
        assert ends(server) == {"keep_alive_timeout": 1}
        assert last_presence(harness) == ("lost", "keep_alive_timeout")
        Wire(server).send(connect("c"))
        await turn()
        await server.stop()
        await turn()
        assert ends(server) == {"keep_alive_timeout": 1, "server_shutting_down": 1}
        assert last_presence(harness) == ("lost", "server_shutting_down")

    run(scenario())


def test_lost_while_connect_is_worked_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        harness, server = await hosted(tmp_path)
        harness.bus.held_acks = {harness.topics.sessions}
        wire = Wire(server).send(connect("c"), Subscribe(1, [Subscription("a", 1)]))
        await turn()
        wire.lose()
        harness.bus.held_acks = set()
        harness.bus.release()
        await turn()
        assert ends(server) == {LOST_CONNECTING: 1}
        assert last_presence(harness) == ("lost", LOST_CONNECTING)
        await server.stop()

    run(scenario())


def test_a_client_that_asks_and_does_not_read_the_answers(tmp_path: Path) -> None:
    """They do not pile up without end: 0x97; a client that reads again in time begins anew."""

    async def scenario() -> None:
        _, server = await hosted(tmp_path, write_buffer_bytes=100)
        wire = Wire(server).send(connect("c"))
        await turn()
        for _ in range(3):
            wire.connection.writing_paused()
            for _ in range(5):
                wire.send(*[Pingreq()] * 10)
                await turn(0.01)
            wire.connection.writing_resumed()
        assert not wire.is_closed
        wire.connection.writing_paused()
        wire.send(*[Pingreq()] * 51)
        await turn(0.01)
        assert wire.is_closed
        assert wire.received[-1] == Disconnect(ReasonCode.QUOTA_EXCEEDED)
        assert ends(server) == {"quota_exceeded": 1}
        await server.stop()

    run(scenario())


def test_ends_of_connections_that_no_client_had(tmp_path: Path) -> None:
    """Only the metrics know of them: nobody came, so nobody goes."""

    async def scenario() -> None:
        harness, server = await hosted(tmp_path, connections=2)
        Wire(server)
        await turn(server.limits.connect_timeout_s + 1)
        assert ends(server) == {"connect_timeout": 1}
        Wire(server).lose()
        await turn()
        assert ends(server) == {"connect_timeout": 1, "connection_lost": 1}
        server.counts.clear()
        for client in ("one", "two", "c"):
            Wire(server).send(connect(client))
            await turn()
        assert ends(server) == {"quota_exceeded": 1}
        assert harness.presence("c") == []
        await server.stop()

    run(scenario())
