"""`waystation subscribe`: prints each message, acknowledges nothing before it is printed, and never goes deaf."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from jobs.cli.message_format import as_json, as_raw, as_text
from mqtt.codes import PacketType, ReasonCode
from mqtt.packets import Connect, Disconnect, Packet, Puback, Publish, Pubrec, Suback, Subscribe
from tests.unit.gateway.host.socket_gateway import SocketGateway
from tests.unit.jobs.cli.scripted_server import Peer, ScriptedServer, failures

Run = Callable[..., int]

PASSING = [ReasonCode.SERVER_SHUTTING_DOWN, ReasonCode.SERVER_BUSY, ReasonCode.KEEP_ALIVE_TIMEOUT]
FINAL = [
    ReasonCode.ADMINISTRATIVE_ACTION,
    ReasonCode.SESSION_TAKEN_OVER,
    ReasonCode.NOT_AUTHORIZED,
    ReasonCode.PROTOCOL_ERROR,
    ReasonCode.PACKET_TOO_LARGE,
]


def subscribed(peer: Peer, packet: Packet, *messages: Publish) -> bool:
    """Answers a SUBSCRIBE and sends messages; False for any other packet."""
    if not isinstance(packet, Subscribe):
        return False
    peer.send(Suback(packet.packet_id, [ReasonCode(wanted.qos) for wanted in packet.filters]), *messages)
    return True


def messages(count: int, qos: int) -> list[Publish]:
    return [Publish("jobs/a", b"%d" % n, qos, packet_id=n + 1 if qos else 0) for n in range(count)]


@pytest.mark.parametrize("qos", [1, 2])
def test_what_was_not_printed_is_not_acknowledged(run: Run, capfd, qos: int) -> None:
    waiting = messages(5, qos)

    def script(peer: Peer, packet: Packet) -> bool:
        if isinstance(packet, Subscribe):
            return subscribed(peer, packet, waiting.pop(0), waiting.pop(0))
        if type(packet) in (Puback, Pubrec) and waiting:
            peer.send(waiting.pop(0))  # there is room for it
        return False

    with ScriptedServer(script) as server:
        arguments = ("--qos", str(qos), "--count", "2", "--client-id", "jobs", "--address", server.address)
        assert run("subscribe", "jobs/#", *arguments) == 0
        assert len(server.wait_for(Disconnect)) == 1
        answers = [packet.packet_id for packet in server.of(Puback if qos == 1 else Pubrec)]  # type: ignore[union-attr]
    assert answers == [1, 2]
    assert capfd.readouterr().out == "jobs/a 0\njobs/a 1\n"


@pytest.mark.parametrize("qos", ["1", "2"])
def test_a_kept_session_gives_each_run_its_share(run: Run, capfd, tmp_path: Path, qos: str) -> None:
    """Ten messages wait; runs that take one or three each get all of them, in order, once."""
    with SocketGateway(tmp_path / "gateway") as gateway:
        at = ("--address", f"127.0.0.1:{gateway.mqtt_port}")
        once = ("subscribe", "jobs/#", "--qos", qos, "--client-id", f"jobs{qos}", *at)
        assert run("publish", "jobs/x", "first", "--retain", *at) == 0
        assert run(*once, "--count", "1") == 0
        for number in range(10):
            assert run("publish", "jobs/x", str(number), "--qos", qos, *at) == 0
        for count in (1, 3, 1, 5):
            assert run(*once, "--count", str(count)) == 0
    lines = capfd.readouterr().out.splitlines()
    shown = [line.split() for line in lines if line.startswith("jobs/x ")]  # the gateway logs to the same place
    assert shown == [["jobs/x", "first"], *[["jobs/x", str(number)] for number in range(10)]]


@pytest.mark.parametrize("reason", PASSING, ids=lambda reason: reason.name)
@pytest.mark.parametrize("is_kept", [True, False])
def test_it_subscribes_again_when_the_session_is_lost(run: Run, capfd, reason: ReasonCode, is_kept: bool) -> None:
    def script(peer: Peer, packet: Packet) -> bool:
        if peer.number == 1 and subscribed(peer, packet):
            peer.disconnect(reason, "later")
            return True
        return subscribed(peer, packet, *messages(1, 1))

    with ScriptedServer(script) as server:
        name = ("--client-id", "me") if is_kept else ()
        assert run("subscribe", "jobs/#", "a/+", "--count", "1", *name, "--address", server.address) == 0
        assert len(server.of(Connect)) == 2
    shown = capfd.readouterr()
    assert shown.out == "jobs/a 0\n"
    assert "the gateway no longer has the session; subscribed again" in shown.err


def test_a_session_that_is_there_is_not_subscribed_again(run: Run, capfd) -> None:
    def script(peer: Peer, packet: Packet) -> bool:
        if peer.number == 1 and subscribed(peer, packet):
            peer.disconnect(ReasonCode.SERVER_SHUTTING_DOWN)
            return True
        if peer.number == 2 and isinstance(packet, Connect):
            peer.accept(session_present=True)
            peer.send(*messages(1, 1))
            return True
        return False

    with ScriptedServer(script) as server:
        assert run("subscribe", "jobs/#", "--count", "1", "--client-id", "me", "--address", server.address) == 0
        assert len(server.of(Subscribe)) == 1
    shown = capfd.readouterr()
    assert shown.out == "jobs/a 0\n"
    assert "reconnecting" in shown.err
    assert "session is lost" not in shown.err


@pytest.mark.parametrize("reason", FINAL, ids=lambda reason: reason.name)
def test_it_ends_with_a_sentence_where_a_new_connection_is_no_use(run: Run, capfd, reason: ReasonCode) -> None:
    """A kick, another client of the name, a right that was taken: not silence, and no fight with the operator."""

    def script(peer: Peer, packet: Packet) -> bool:
        if subscribed(peer, packet):
            peer.disconnect(reason, "because")
            return True
        return False

    with ScriptedServer(script) as server:
        assert run("subscribe", "jobs/#", "--address", server.address) == 1
        assert len(server.of(Connect)) == 1
    shown = capfd.readouterr()
    assert shown.out == ""
    assert f"{reason.name} (because)" in shown.err
    assert shown.err.count("\n") == 1


def test_a_kicked_subscriber_says_so(run: Run, capfd, tmp_path: Path) -> None:
    with SocketGateway(tmp_path / "gateway") as gateway:

        def kick() -> None:
            gateway._loop.create_task(gateway.harness.home.kick("me", end_session=True))

        home = gateway.harness.shard_of("me")
        real = home.subscribe

        async def subscribe(*arguments: object, **options: object) -> object:
            answer = await real(*arguments, **options)  # type: ignore[arg-type]
            gateway._loop.call_later(0.1, kick)
            return answer

        home.subscribe = subscribe  # type: ignore[method-assign,assignment]
        where = ("--client-id", "me", "--address", f"127.0.0.1:{gateway.mqtt_port}")
        assert run("subscribe", "jobs/#", *where) == 1
    assert "ADMINISTRATIVE_ACTION" in capfd.readouterr().err


@pytest.mark.parametrize("reason", failures(PacketType.SUBACK), ids=lambda reason: reason.name)
def test_a_refused_filter_is_named_with_its_reason(run: Run, capfd, reason: ReasonCode) -> None:
    def script(peer: Peer, packet: Packet) -> bool:
        if isinstance(packet, Subscribe):
            peer.send(Suback(packet.packet_id, [ReasonCode.GRANTED_QOS_1, reason]))
            return True
        return False

    with ScriptedServer(script) as server:
        assert run("subscribe", "fine", "not/fine", "--address", server.address) == 1
    assert f"refused not/fine ({reason.name})" in capfd.readouterr().err


def test_formats() -> None:
    message = Publish(
        "a/\x1b[2J\u202e", b"line\none \xff\x07", 1, True, packet_id=9, properties={"user_property": [("a", "b")]}
    )
    assert as_text(message) == b"a/\\x1b[2J\\u202e line\\none \\xff\\x07\n"
    assert as_raw(message) == message.payload + b"\n"
    shown = json.loads(as_json(message))
    assert shown == {
        "topic": message.topic,
        "qos": 1,
        "retain": True,
        "payload_base64": "bGluZQpvbmUg/wc=",
        "properties": {"user_property": [["a", "b"]]},
    }
    assert json.loads(as_json(Publish("t", "né".encode()))) == {
        "topic": "t",
        "qos": 0,
        "retain": False,
        "payload": "né",
    }


def test_raw_output_is_the_payload_byte_for_byte(run: Run, capfdbinary) -> None:
    payload = bytes(range(256)) * 300  # more than a pipe takes at once
    with ScriptedServer(lambda peer, packet: subscribed(peer, packet, Publish("t", payload))) as server:
        assert run("subscribe", "t", "--format", "raw", "--count", "1", "--address", server.address) == 0
    assert capfdbinary.readouterr().out == payload + b"\n"
