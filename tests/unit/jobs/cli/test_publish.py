"""`waystation publish`: exit status 0 means that the gateway has all of the messages, and nothing else does."""

import io
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mqtt.codes import PacketType, ReasonCode
from mqtt.packets import Connect, Packet, Puback, Publish, Pubrec, Unsubscribe
from tests.unit.jobs.cli.scripted_server import Peer, ScriptedServer, failures

Run = Callable[..., int]


def payloads(server: ScriptedServer) -> list[bytes]:
    return [packet.payload for packet in server.of(Publish) if isinstance(packet, Publish)]


@pytest.mark.parametrize("reason", failures(PacketType.PUBACK), ids=lambda reason: reason.name)
@pytest.mark.parametrize("qos", [1, 2])
def test_a_refused_message_is_no_success(run: Run, capfd, qos: int, reason: ReasonCode) -> None:
    def refuse(peer: Peer, packet: Packet) -> bool:
        if not isinstance(packet, Publish):
            return False
        answer = Puback if qos == 1 else Pubrec
        peer.send(answer(packet.packet_id, reason, {"reason_string": "because"}))
        return True

    with ScriptedServer(refuse) as server:
        assert run("publish", "a", "x", "--qos", str(qos), "--address", server.address) == 1
    shown = capfd.readouterr()
    assert (shown.out, shown.err.count("\n")) == ("", 1)
    assert f"refused the message: {reason.name} (because)" in shown.err


@pytest.mark.parametrize("reason", failures(PacketType.CONNACK), ids=lambda reason: reason.name)
def test_a_refused_connection_says_why(run: Run, capfd, reason: ReasonCode) -> None:
    def refuse(peer: Peer, packet: Packet) -> bool:
        peer.refuse(reason, "because")
        return True

    with ScriptedServer(refuse) as server:
        assert run("publish", "a", "x", "--address", server.address) == 1
        assert run("subscribe", "a", "--address", server.address) == 1
    shown = capfd.readouterr()
    assert shown.out == ""
    assert shown.err.count(f"refused the connection: {reason.name} (because)") == 2
    assert shown.err.count("\n") == 2


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_the_reason_of_a_disconnect_instead_of_an_answer(run: Run, capfd, qos: int) -> None:
    """Also at QoS 0, where nothing else would tell; one connection, no second try behind the user's back."""

    def disconnect(peer: Peer, packet: Packet) -> bool:
        if isinstance(packet, Publish):
            peer.disconnect(ReasonCode.QUOTA_EXCEEDED, "too many")
            return True
        return False

    with ScriptedServer(disconnect) as server:
        assert run("publish", "a", "x", "--qos", str(qos), "--address", server.address) == 1
        assert len(server.of(Connect)) == 1
    assert "QUOTA_EXCEEDED (too many)" in capfd.readouterr().err


@pytest.mark.parametrize(
    "topic", ["", "a/+", "#", "a" * 65_536, "nul\0", "é" * 40_000, "\udcff"], ids=lambda topic: topic[:3] or "empty"
)
def test_a_topic_that_is_none_is_one_sentence(run: Run, capfd, topic: str) -> None:
    with ScriptedServer() as server:
        assert run("publish", topic, "x", "--address", server.address) == 1
        assert not server.of(Publish)
    shown = capfd.readouterr().err
    assert shown.count("\n") == 1
    assert "is not a topic name" in shown
    assert len(shown) < 400


@pytest.mark.parametrize("topic_filter", ["", "a/#/b", "a+", "$share/g", "$share//a", "$share/g+/a", "nul\0"])
def test_a_filter_that_is_none_is_one_sentence(run: Run, capfd, topic_filter: str) -> None:
    with ScriptedServer() as server:
        assert run("subscribe", topic_filter, "--address", server.address) == 1
    shown = capfd.readouterr().err
    assert shown.count("\n") == 1
    assert "topic filter" in shown


def test_a_file_is_sent_byte_for_byte(run: Run, tmp_path: Path) -> None:
    content = bytes(range(256)) * 9 + b"\r\n\n"
    (tmp_path / "picture").write_bytes(content)
    with ScriptedServer() as server:
        assert run("publish", "a", "--file", str(tmp_path / "picture"), "--address", server.address) == 0
        assert payloads(server) == [content]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_each_line_of_standard_input_is_a_message(run: Run, monkeypatch: pytest.MonkeyPatch, qos: int) -> None:
    lines = [b"one", b"", b"\xff\xfe not UTF-8", *[b"%d" % number for number in range(3_000)], b"no line feed"]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\n".join(lines))))
    with ScriptedServer() as server:
        assert run("publish", "a", "--lines", "--qos", str(qos), "--address", server.address) == 0
        assert payloads(server) == lines
        assert len(server.of(Unsubscribe)) == (qos == 0)


def test_how_far_it_came_is_said(run: Run, capfd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"1\n2\n3\n4\n")))

    def refuse_third(peer: Peer, packet: Packet) -> bool:
        if isinstance(packet, Publish) and packet.payload == b"3":
            peer.send(Puback(packet.packet_id, ReasonCode.NOT_AUTHORIZED))
            return True
        return False

    with ScriptedServer(refuse_third) as server:
        assert run("publish", "a", "--lines", "--address", server.address) == 1
    assert "NOT_AUTHORIZED (2 earlier messages were acknowledged)" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "the payload is missing"),
        (("x", "--lines"), "the payload is given twice"),
        (("--file", "/nowhere"), "cannot read /nowhere"),
        (("x", "--address", "127.0.0.1:0"), "is not an address"),
        (("x", "--password-file", "/nowhere"), "give the user name as well"),
        (("x", "--user", "u", "--password-file", "/nowhere"), "cannot read the password file /nowhere"),
        (("x", "--key", "/nowhere"), "give the client certificate as well"),
        (("x", "--cafile", "/nowhere"), "cannot read certificate authorities from /nowhere"),
        (("x", "--cafile", __file__), "cannot read certificate authorities from"),
        (("x", "--cert", "/nowhere"), "cannot use the client certificate /nowhere"),
    ],
)
def test_unusable_options_are_one_sentence(run: Run, capfd, arguments: tuple[str, ...], sentence: str) -> None:
    with ScriptedServer() as server:
        where = () if "--address" in arguments else ("--address", server.address)
        assert run("publish", "a", *arguments, *where) == 1
    shown = capfd.readouterr().err
    assert sentence in shown
    assert shown.count("\n") == 1


def test_nobody_listens(run: Run, capfd) -> None:
    with ScriptedServer() as server:
        gone = server.address
    assert run("publish", "a", "x", "--address", gone) == 1
    shown = capfd.readouterr().err
    assert gone in shown
    assert "cannot be reached" in shown
    assert shown.count("\n") == 1
