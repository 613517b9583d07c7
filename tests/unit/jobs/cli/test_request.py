"""`waystation request`: prints replies, and exit status 0 means that there was one (R6)."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mqtt.codes import ReasonCode
from mqtt.packets import Connect, Packet, Puback, Publish
from tests.unit.jobs.cli.scripted_server import Peer, ScriptedServer

Run = Callable[..., int]
Answer = tuple[bytes, dict[str, Any]]


def answering(*answers: Answer) -> Callable[[Peer, Packet], bool]:
    """Sends these answers to every request."""

    def script(peer: Peer, packet: Packet) -> bool:
        if isinstance(packet, Publish):
            asked = packet.properties or {}
            peer.send(Puback(packet.packet_id))
            for payload, properties in answers:
                known = {"correlation_data": asked["correlation_data"]}
                peer.send(Publish(asked["response_topic"], payload, 0, properties=known | properties))
            return True
        return False

    return script


def receipt(kind: str, recipients: int) -> Answer:
    """What a gateway of Waystation says of a request once it is over."""
    content = {"message_id": "1", "receipt": kind, "recipients": recipients, "read": 0, "complete": True}
    return json.dumps(content | {"outcomes": {}}).encode(), {"user_property": [("waystation-receipt", kind)]}


def test_the_reply_is_printed(run: Run, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "question").write_bytes(b"\xff?")
    with ScriptedServer(answering((b"at 9\a", {}))) as server:
        assert run("request", "questions", "when?", "--property", "conversation=4=2", "--address", server.address) == 0
        assert run("request", "@shop", "--file", str(tmp_path / "question"), "--address", server.address) == 0
        assert run("request", "@shop", "--address", server.address) == 0
        sent = [packet for packet in server.of(Publish) if isinstance(packet, Publish)]
    assert [(one.topic, one.payload) for one in sent] == [("questions", b"when?"), ("@shop", b"\xff?"), ("@shop", b"")]
    assert (sent[0].properties or {})["user_property"] == [("conversation", "4=2"), ("receipt", "failed")]
    assert capfd.readouterr().out == "at 9\\x07\n" * 3


def test_as_json_and_as_it_is(run: Run, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    with ScriptedServer(answering((b"\xff", {"user_property": [("shop", "1")], "content_type": "a/b"}))) as server:
        assert run("request", "questions", "--format", "json", "--address", server.address) == 0
        shown = json.loads(capfdbinary.readouterr().out)
        assert run("request", "questions", "--format", "raw", "--address", server.address) == 0
    assert shown["payload_base64"] == "/w=="
    assert shown["properties"] == {"content_type": "a/b", "user_property": [["shop", "1"]]}
    assert capfdbinary.readouterr().out == b"\xff\n"


def test_the_replies_of_all_receivers(run: Run, capfd: pytest.CaptureFixture[str]) -> None:
    """Until as many are there as have got the request; or until the time is over."""
    replies = (b"1", {}), (b"2", {})
    with ScriptedServer(answering(replies[0], receipt("completed", 2), replies[1])) as server:
        assert run("request", "questions", "--all", "--address", server.address) == 0
    with ScriptedServer(answering(*replies)) as server:
        assert run("request", "questions", "--all", "--timeout", "0.5", "--address", server.address) == 0
    assert capfd.readouterr().out == "1\n2\n" * 2


def test_it_is_asked_again(run: Run, capfd: pytest.CaptureFixture[str]) -> None:
    """R6: whoever gets the second one can see that."""
    reply = answering((b"here", {}))

    def hesitate(peer: Peer, packet: Packet) -> bool:
        if not isinstance(packet, Publish):
            return False
        if ("request-repeated", "true") in (packet.properties or {})["user_property"]:
            return reply(peer, packet)
        peer.send(Puback(packet.packet_id))
        return True

    with ScriptedServer(hesitate) as server:
        assert run("request", "questions", "--again-after", "0.2", "--address", server.address) == 0
        assert len(server.of(Publish)) == 2
    assert capfd.readouterr().out == "here\n"


@pytest.mark.parametrize("words", [(), ("--all",)])
def test_no_reply_is_no_success(run: Run, capfd: pytest.CaptureFixture[str], words: tuple[str, ...]) -> None:
    with ScriptedServer(answering()) as server:
        assert run("request", "questions", *words, "--timeout", "0.3", "--address", server.address) == 1
    assert capfd.readouterr() == ("", "no reply from 'questions' within 0.3 s\n")
    with ScriptedServer(answering(receipt("completed" if words else "failed", 0))) as server:
        assert run("request", "questions", *words, "--address", server.address) == 1
    assert capfd.readouterr() == ("", "nobody has got the request (nobody wanted it)\n")


def test_a_refusal_says_why(run: Run, capfd: pytest.CaptureFixture[str]) -> None:
    def refuse(peer: Peer, packet: Packet) -> bool:
        if isinstance(packet, Publish):
            peer.send(Puback(packet.packet_id, ReasonCode.NOT_AUTHORIZED, {"reason_string": "because"}))
        return isinstance(packet, Publish)

    def close(peer: Peer, packet: Packet) -> bool:
        peer.refuse(ReasonCode.BAD_USER_NAME_OR_PASSWORD, "who?")
        return True

    with ScriptedServer(refuse) as server:
        assert run("request", "questions", "--address", server.address) == 1
    assert "NOT_AUTHORIZED (because)" in capfd.readouterr().err
    with ScriptedServer(close) as server:
        assert run("request", "questions", "--address", server.address) == 1
        assert len(server.of(Connect)) == 1
    assert "BAD_USER_NAME_OR_PASSWORD (who?)" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("a", "b"), "no stack is running in"),
        (("a", "b", "--file", "c", "--address", "127.0.0.1:1"), "the payload is given twice"),
        (("a", "--property", "x", "--address", "127.0.0.1:1"), "'x' is not a user property: write NAME=VALUE"),
        (("a", "--all", "--again-after", "1", "--address", "127.0.0.1:1"), "--again-after goes with one reply"),
        (("a", "--client-id", "a+", "--address", "127.0.0.1:1"), "client_id must have"),
        (("a", "--address", "127.0.0.1:1"), "127.0.0.1:1 cannot be reached: Connect call failed"),
    ],
)
def test_what_cannot_be_asked_is_one_sentence(
    run: Run, capfd: pytest.CaptureFixture[str], words: tuple[str, ...], sentence: str
) -> None:
    assert run("request", *words) == 1
    shown = capfd.readouterr()
    assert (shown.out, shown.err.count("\n")) == ("", 1)
    assert sentence in shown.err
