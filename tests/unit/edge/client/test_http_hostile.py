"""What answers over HTTP may be anything: nothing counts as acknowledged, nothing hangs, nothing is lost (G13, M2)."""

import json
from pathlib import Path
from typing import Any

import pytest

from edge.client.errors import NotReachable
from edge.client.event_stream import EventParser, decode_end, decode_message
from edge.client.limits import Limits
from edge.client.message import MessageState
from edge.errors import AnswerFault, ConnectRefused, PublishRefused
from mqtt.codes import ReasonCode
from schemas.identity import derived_message_id
from tests import draw
from tests.faithful_client import eventually
from tests.unit.edge.client.client_harness import client, complete
from tests.unit.edge.client.hostile_http import CLIENT, HEAD, STREAM, HostileHttp, answer, chunk

PORTAL = b"<html><body>Please log in</body></html>"
PROBLEM = "application/problem+json"
QUICK = Limits(answer_timeout_s=0.2, connect_timeout_s=0.3)


def stored(head: str, body: bytes) -> bytes:
    """The answer of a gateway that has stored the message."""
    key = head.partition("Idempotency-Key: ")[2].partition("\r")[0]
    return answer("202 Accepted", "application/json", json.dumps({"id": derived_message_id(CLIENT, key)}).encode())


def problem(status: str, reason: str, *fields: str) -> bytes:
    return answer(status, PROBLEM, json.dumps({"reason": reason, "detail": "so it is"}).encode(), *fields)


OTHER_ID = json.dumps({"id": derived_message_id("somebody", "else")}).encode()
WRONG = {
    "login page": answer("200 OK", "text/html", PORTAL),
    "login page, 202": answer("202 Accepted", "text/html", PORTAL),
    "redirect": answer("302 Found", "text/html", b"", "Location: http://127.0.0.1:1/"),
    "no content": b"HTTP/1.1 204 No Content\r\n\r\n",
    "another message": answer("202 Accepted", "application/json", OTHER_ID),
    "no id": answer("202 Accepted", "application/json", b'{"ok": true}'),
    "no JSON": answer("202 Accepted", "application/json", b'{"id": "\xff'),
    "deep JSON": answer("202 Accepted", "application/json", b"[" * 60_000),
    "proxy": answer("403 Forbidden", "text/html", PORTAL),
    "another service": answer("404 Not Found", PROBLEM, b'{"reason": "not_found"}'),
    "credentials": problem("401 Unauthorized", "not_authorized"),
    "a banned client": problem("403 Forbidden", "banned"),
    "problem without a reason": answer("400 Bad Request", PROBLEM, b"{}"),
    "huge body": answer("202 Accepted", "application/json", b" " * (1 << 20)),
    "huge header": b"HTTP/1.1 202 Accepted\r\nX: " + b"x" * (1 << 20) + b"\r\n\r\n",
    "many headers": b"HTTP/1.1 202 Accepted\r\n" + b"X: y\r\n" * 100_000 + b"\r\n",
    "no HTTP": b"220 mail.example.org ESMTP\r\n",
    "silence": None,
}


@pytest.mark.parametrize("name", WRONG)
def test_no_other_answer_acknowledges_a_message(tmp_path: Path, name: str) -> None:
    """The message stays on disk and is stored as soon as the gateway is back, with the same key."""
    keys: list[str] = []
    is_back = False

    def post(head: str, body: bytes) -> bytes | None:
        keys.append(head.partition("Idempotency-Key: ")[2].partition("\r")[0])
        return stored(head, body) if is_back else WRONG[name]

    async def run() -> None:
        nonlocal is_back
        async with HostileHttp(post) as server, client(server.url, store=tmp_path / "o", limits=QUICK) as van:
            message = await van.publish("x", b"payload")
            await eventually(lambda: van._bearer.connections >= 2, "the connection is given up")
            assert message.state is MessageState.ACCEPTED
            assert van.usage[0] == 1
            is_back = True
            await message.acknowledged
        assert len(set(keys)) == 1

    complete(run())


def test_a_large_message_over_a_slow_link() -> None:
    """It may take any time while the gateway goes on taking it: only silence ends a connection."""

    async def run() -> None:
        async with HostileHttp(stored) as server, client(server.url, limits=Limits(answer_timeout_s=1)) as van:
            server.piece = 4_000  # 2.5 s
            await (await van.publish("x", bytes(999_000))).acknowledged
            assert (server.posts, van._bearer.connections) == (1, 1)

    complete(run())


def test_truncated_answers(tmp_path: Path) -> None:
    """At each drawn byte; the gateway has stored the message, and the client does not know."""
    choice = draw.generator("answers over HTTP that are cut")
    whole = len(stored("Idempotency-Key: x\r\n", b""))

    async def run() -> None:
        async with HostileHttp(stored) as server, client(server.url, limits=QUICK) as van:
            for cut in sorted({1, whole - 1, *choice.sample(range(1, whole), 8)}):
                server.cut = cut
                message, posts = await van.publish("x", b"payload"), server.posts
                await eventually(lambda posts=posts: server.posts >= posts + 2, "it is sent again")  # type: ignore[misc]
                assert message.state is MessageState.ACCEPTED, cut
                server.cut = 0
                await message.acknowledged

    complete(run())


@pytest.mark.parametrize(
    "said",
    [
        *(answer("200 OK", "text/html", PORTAL), answer("200 OK", "text/event-stream", b"data: {}\n\n")),
        *(answer("302 Found", "text/html", b"", "Location: /"), problem("404 Not Found", "not_found"), None),
        *(HEAD.partition(b"X-Client")[0] + b"\r\n", b"HTTP/1.1 200 OK\r\n" + b"x" * (1 << 20)),
    ],
    ids=["portal", "no name", "redirect", "not found", "silence", "no length", "huge"],
)
def test_no_other_stream_is_a_connection(said: bytes | None) -> None:
    async def run() -> None:
        async with HostileHttp(stored, lambda *_: said) as server, client(server.url, limits=QUICK) as van:
            with pytest.raises(NotReachable) as error:
                await van.connected()
            assert len(error.value.attempts) == 2
            assert len(str(error.value)) < 2_000
            assert not server.posts

    complete(run())


@pytest.mark.parametrize(
    ("status", "reason", "code"),
    [
        ("401 Unauthorized", "bad_user_name_or_password", ReasonCode.BAD_USER_NAME_OR_PASSWORD),
        ("403 Forbidden", "client_identifier_not_valid", ReasonCode.CLIENT_IDENTIFIER_NOT_VALID),
    ],
)
def test_refused_for_good(status: str, reason: str, code: ReasonCode) -> None:
    async def run() -> None:
        async with HostileHttp(stored, lambda *_: problem(status, reason)) as server, client(server.url) as van:
            with pytest.raises(ConnectRefused, match="so it is") as error:
                await van.connected()
            assert error.value.reason is code

    complete(run())


@pytest.mark.parametrize(
    ("said", "code"),
    [
        (problem("403 Forbidden", "not_authorized"), ReasonCode.NOT_AUTHORIZED),
        (problem("413 Content Too Large", "packet_too_large"), ReasonCode.PACKET_TOO_LARGE),
        (problem("431 Too Large", "header_too_large"), ReasonCode.PACKET_TOO_LARGE),
        (problem("422 Unprocessable", "idempotency_key_reused"), ReasonCode.UNSPECIFIED_ERROR),
        (problem("400 Bad Request", "topic_name_invalid"), ReasonCode.TOPIC_NAME_INVALID),
    ],
)
def test_refused_messages(said: bytes, code: ReasonCode) -> None:
    async def run() -> None:
        async with HostileHttp(lambda *_: said) as server, client(server.url) as van:
            message = await van.publish("x", b"payload")
            with pytest.raises(PublishRefused, match="so it is") as error:
                await message.acknowledged
            assert error.value.reason is code
            assert message.state is MessageState.REFUSED
            assert van.is_connected

    complete(run())


def test_sent_again_after_the_pause_that_is_asked_for() -> None:
    """429 and 503 end neither the message nor the connection; messages to other topics go on."""
    refusals = [
        problem("429 Too Many Requests", "message_rate_too_high", "Retry-After: 0"),
        problem("503 Service Unavailable", "kafka_timeout", "Retry-After: Fri, 31 Dec 1999 23:59:59 GMT"),
        problem("500 Internal Server Error", "internal_error"),
    ]

    def post(head: str, body: bytes) -> bytes:
        return refusals.pop(0) if "/slow?" in head and refusals else stored(head, body)

    async def run() -> None:
        async with HostileHttp(post) as server, client(server.url) as van:
            slow, quick = await van.publish("slow", b"1"), await van.publish("quick", b"2")
            await quick.acknowledged
            await slow.acknowledged
            assert not refusals
            assert van._bearer.connections == 1

    complete(run())


def test_given_up_when_its_lifetime_has_ended() -> None:
    async def run() -> None:
        said = problem("429 Too Many Requests", "quota_exceeded", "Retry-After: 0")
        async with HostileHttp(lambda *_: said) as server, client(server.url) as van:
            message = await van.publish("x", b"payload", lifetime_s=0.1)
            with pytest.raises(PublishRefused) as error:
                await message.acknowledged
            assert error.value.reason is ReasonCode.QUOTA_EXCEEDED

    complete(run())


def event(**changes: Any) -> bytes:
    data = {"id": "1", "topic": "t", "payload": "p", "encoding": "text", "qos": 1, "retain": False, "properties": {}}
    return b"id: w-1\nevent: message\ndata: %b\n\n" % json.dumps(data | changes).encode()


def test_events_at_every_split() -> None:
    """Comments, CRLF and unknown fields are part of the format; a truncated event is never given."""
    whole = (
        b": hello\r\nretry: 1000\n\n" + event(payload="/w==", encoding="base64", qos=2) + b"foo\nevent: new\ndata\n\n"
    )
    for split in range(len(whole) + 1):
        parser = EventParser()
        found = parser.receive(whole[:split]) + parser.receive(whole[split:])
        assert [one.name for one in found] == ["message", "new"]
        received = decode_message(found[0])
        assert received is not None
        assert (received.packet.payload, received.packet.qos, received.event_id) == (b"\xff", 2, "w-1")
        assert decode_message(found[1]) is None
        assert len(EventParser().receive(whole[:split])) <= 2


def test_properties_of_a_later_version_are_left_out() -> None:
    """Also those that are no message's."""
    (found,) = EventParser().receive(event(properties={"new": [7], "topic_alias": 1, "expiry": 9, "content_type": "x"}))
    received = decode_message(found)
    assert received is not None
    assert received.packet.properties == {"content_type": "x", "message_expiry_interval": 9}


@pytest.mark.parametrize(
    "wrong",
    [
        *(
            event(qos=3),
            event(topic=""),
            event(payload="?", encoding="base64"),
            event(properties={"user_properties": 7}),
        ),
        *(event(properties={"content_type": 7}), event(properties={"expiry": "x"}), event(id=7)),
        *(event(topic="a/#"), event(topic="a\0"), event(topic="é" * 40_000)),
        *(event(properties={"response_topic": "a/+"}), event(properties={"response_topic": ""})),
        *(event(properties={"content_type": "\0"}), event(properties={"content_type": "x" * 70_000})),
        *(event(properties={"expiry": -1}), event(properties={"expiry": 2**32}), event(properties={"expiry": 1.5})),
        *(event(properties={"user_properties": [[1, 2]]}), event(properties={"user_properties": [["a"]]})),
        *(event(properties={"payload_format_indicator": 2}), event(properties={"correlation_data": "?"})),
        *(event().replace(b"id: w-1\n", b""), b"data: " + b"[" * 100_000 + b"\n\n", b"id: \xff\ndata: x\n\n"),
        *(b"data: \xff\n\n", b"event: end\ndata: {}\n\n", b"data: " + b"x" * 5_000, b"data: x\n" * 900),
    ],
    ids=range(28),
)
def test_events_that_are_none(wrong: bytes) -> None:
    def read() -> None:
        parser = EventParser(4_000) if len(wrong) < 8_000 else EventParser()
        for one in parser.receive(wrong):
            assert decode_end(one) is None
            decode_message(one)

    with pytest.raises(AnswerFault):
        read()


def test_mutated_streams() -> None:
    """Whatever arrives is a message of the right types, or a fault; no id is kept that could not be sent back."""
    choice = draw.generator("mutated streams over HTTP")
    for _ in range(2_000):
        data = bytearray(event(properties={"expiry": 1, "content_type": "x"}) * 2)
        for _ in range(choice.randint(1, 4)):
            data[choice.randrange(len(data))] = choice.randrange(256)
        try:
            for one in EventParser().receive(bytes(data)):
                if decode_end(one) is None and (received := decode_message(one)) is not None:
                    assert isinstance(received.packet.payload, bytes)
                    assert isinstance(received.packet.topic, str)
                    assert received.event_id.isascii()
                    assert received.event_id.isprintable()
        except AnswerFault:
            pass


def test_a_stream_that_breaks_is_opened_again() -> None:
    """By an event that is none, by its end, and by its silence."""
    ends = [chunk(event(id=7)), b"0\r\n\r\n", chunk(b'event: end\ndata: {"reason": "server_busy"}\n\n')]

    def stream(head: str, body: bytes) -> bytes:
        return STREAM + chunk(event()) + (ends.pop() if ends else b"")

    async def run() -> None:
        async with HostileHttp(stored, stream) as server, client(server.url, limits=QUICK) as van:
            await eventually(lambda: van._bearer.connections == 4 and van.is_connected, "it is connected again")
            assert (await anext(van.messages())).payload == b"p"
            assert not van._inbox._waiting, "a copy is given"

    complete(run())
