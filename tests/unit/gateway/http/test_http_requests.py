"""Requests over HTTP: one reply, from MQTT clients (R6; MQTT 5.0, 4.10)."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from gateway.shard.arrivals import REPLY_CLIENTS
from schemas.envelope import Meta
from tests.unit.gateway.http.http_harness import HttpHarness, run, until
from tests.unit.gateway.http.responder import Request, Responder, ask, echo, is_idle, responding, silent
from tests.unit.gateway.shard.home_harness import SHARDS


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_the_reply_is_the_response(tmp_path: Path, qos: int) -> None:
    """R6: payload, content type and user properties, as a POST maps them; the ledger counts it as delivered."""

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path).start()
        pairs = [("unit", "°C"), ("a=b", "c,d"), ("unit", "x=y\r\nEvil: 1")]

        def answer(responder: Responder, request: Request) -> None:
            responder.reply(request, b"\x00\xff21", qos, content_type="text/plain; charset=x", user_property=pairs)

        responder = await responding(harness, answer)
        found = await ask(harness, "service?timeout=7", b"how warm", Content_Type="a/b", User_Property="p=q")
        assert (found.status, found.body) == (200, b"\x00\xff21")
        assert found.headers["Content-Type"] == "text/plain; charset=x"
        assert found.headers["X-Content-Type-Options"] == "nosniff"
        [request] = responder.requests
        assert (request.topic, request.payload) == ("service", b"how warm")
        ingress = [r for p in range(2) for r in harness.broker.partitions[harness.topics.ingress, p]]
        [record] = [r for r in ingress if r.key() == b"service"]
        meta = Meta.decode(dict(record.headers() or [])["meta"])
        assert meta.expires is not None
        assert meta.expires - meta.accepted / 1000 <= 7000, "nobody answers in vain"
        assert (request.properties["content_type"], request.properties["user_property"]) == ("a/b", [("p", "q")])
        inbox = request.properties["response_topic"]
        assert inbox.startswith(f"@{REPLY_CLIENTS}")
        assert len(request.properties["correlation_data"]) == 16
        assert found.headers["Request-Message-Id"] in harness.published()
        assert found.headers["Message-Id"] in harness.ids_of(b"\x00\xff21")
        await until(lambda: is_idle(harness))
        await until(lambda: harness.outcomes(inbox[1:]) == ["sent" if qos == 0 else "delivered"])
        assert harness.presence(inbox[1:]) == [], "nobody asks whether an inbox for replies is online"
        logged = [r.key() or b"" for n in range(SHARDS) for r in harness.broker.partitions[harness.topics.sessions, n]]
        assert not [key for key in logged if key.startswith(REPLY_CLIENTS.encode())], "nothing of it is on Kafka"

    run(scenario())


def test_user_properties_are_encoded_as_they_are_sent(tmp_path: Path) -> None:
    """R6: what comes in headers can be sent in headers."""

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path).start()
        pairs = [("unit", "°C"), ("a=b", "c,d"), ("unit", "x=y\r\nEvil: 1")]
        await responding(harness, lambda r, request: r.reply(request, b"", user_property=pairs))
        back = await responding(harness, silent, "back", "other")
        url = harness.url("/v1/requests/service")
        async with harness.session.post(url) as response:
            found = response.headers.getall("User-Property")
        assert found == ["unit=%C2%B0C", "a%3Db=c%2Cd", "unit=x=y%0D%0AEvil:%201"]
        assert (await harness.post("back", headers={"User-Property": ", ".join(found)})).status == 202
        await until(lambda: back.requests)
        assert back.requests[0].properties["user_property"] == pairs

    run(scenario())


@pytest.mark.parametrize("kind", ["", "text/plain\r\nEvil: 1", "t\u00e9xt", " text/plain"])
def test_a_content_type_that_is_no_header_is_left_out(tmp_path: Path, kind: str) -> None:
    async def scenario() -> None:
        harness = await HttpHarness(tmp_path).start()
        await responding(harness, lambda r, request: r.reply(request, b"<b>", content_type=kind))
        found = await ask(harness)
        assert (found.status, found.headers["Content-Type"]) == (200, "application/octet-stream")
        assert "Evil" not in found.headers

    run(scenario())


def test_no_reply_in_time(tmp_path: Path) -> None:
    """504, and nothing is left; a late reply goes to nobody and is kept nowhere."""

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path).start()
        responder = await responding(harness, silent)
        found = await ask(harness, "service?timeout=1")
        assert (found.status, found.reason) == (504, "no_reply")
        assert found.json["detail"] == "no reply within 1 s"
        assert found.headers["Request-Message-Id"] in harness.published()
        assert is_idle(harness)
        for qos in (0, 1, 2):
            responder.reply(responder.requests[0], b"late", qos)
        await until(lambda: len(harness.ids_of(b"late") & harness.completed()) == 3)
        assert harness.outcomes(responder.requests[0].properties["response_topic"][1:]) == []
        assert is_idle(harness)
        assert not harness.spool_rows()

    run(scenario())


def test_only_the_reply_to_this_request_counts(tmp_path: Path) -> None:
    """R6: wrong or no Correlation Data is dropped, and does not keep the reply from coming. A second reply is too."""

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path, {"stream_window": 2}).start()

        def answer(responder: Responder, request: Request) -> None:
            for qos in (0, 1, 2, 1, 2):
                responder.reply(request, b"wrong", qos, correlation_data=b"\x00" * 16)
                responder.publish(request.properties["response_topic"], b"none", qos)
            responder.reply(request, b"right")
            responder.reply(request, b"second", 1)

        await responding(harness, answer)
        found = await ask(harness)
        assert (found.status, found.body) == (200, b"right")
        await until(lambda: is_idle(harness))
        assert harness.hosts.counts["reply_dropped"] >= 10
        wrong = harness.ids_of(b"wrong") | harness.ids_of(b"none") | harness.ids_of(b"second")
        await until(lambda: wrong <= harness.completed())

    run(scenario())


def test_a_reply_that_is_too_large(tmp_path: Path) -> None:
    """reply_bytes, and what does not fit into headers: 502, and the ledger says that it was not delivered."""

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path, {"reply_bytes": 2000, "header_bytes": 1024}).start()
        properties: dict[str, Any] = {}

        def answer(responder: Responder, request: Request) -> None:
            responder.reply(request, request.payload, **properties)

        responder = await responding(harness, answer)
        assert (await ask(harness, body=b"." * 1900)).status == 200
        found = await ask(harness, body=b"." * 2001)
        assert (found.status, found.reason) == (502, "reply_too_large")
        inbox = responder.requests[-1].properties["response_topic"][1:]
        await until(lambda: harness.outcomes(inbox) == ["dropped"])
        properties["user_property"] = [("name", "%" * 400)]
        found = await ask(harness)
        assert (found.status, found.reason) == (502, "reply_too_large")
        properties["user_property"] = [("a", "b")] * 65
        assert (await ask(harness)).status == 502
        properties["user_property"] = [("a", "b")] * 50
        assert (await ask(harness)).status == 200
        assert is_idle(harness)

    run(scenario())


@pytest.mark.parametrize(
    ("query", "headers", "reason"),
    [
        ("timeout=0", {}, "malformed_parameter"),
        ("timeout=31", {}, "malformed_parameter"),
        ("timeout=1.5", {}, "malformed_parameter"),
        ("timeout=99999999999", {}, "malformed_parameter"),
        ("timeout=1&timeout=1", {}, "repeated_parameter"),
        ("replies=some", {}, "malformed_parameter"),
        ("most=1", {}, "malformed_parameter"),
        ("again_after=0", {}, "malformed_parameter"),
        ("again_after=31", {}, "malformed_parameter"),
        ("replies=all&again_after=1", {}, "malformed_parameter"),
        ("replies=all&most=0", {}, "malformed_parameter"),
        ("replies=all&most=1000001", {}, "malformed_parameter"),
        ("qos=2", {}, "malformed_parameter"),
        ("expiry=1", {}, "unknown_parameter"),
        ("retain=true", {}, "unknown_parameter"),
        ("response_topic=a", {}, "unknown_parameter"),
        ("", {"Correlation_Data": "AAAA"}, "malformed_header"),
        ("", {"Content_Type": "a\u00e9"}, "malformed_header"),
        ("", {"User_Property": "a"}, "malformed_header"),
        ("", {"Idempotency_Key": "k"}, "nameless_client"),
        ("", {"Idempotency_Key": "a b", "X_Client_Id": "c"}, "malformed_idempotency_key"),
    ],
)
def test_what_is_malformed_is_not_sent(tmp_path: Path, query: str, headers: dict[str, str], reason: str) -> None:
    async def scenario() -> None:
        harness = await HttpHarness(tmp_path, {"request_timeout_max_s": 30}).start()
        found = await ask(harness, f"service?{query}", **headers)
        assert (found.status, found.reason) == (400, reason)
        assert await harness.stored() == []
        assert is_idle(harness)

    run(scenario())


def test_what_may_not_be_published_is_refused(tmp_path: Path) -> None:
    """The same rules as for messages; the inbox does not stay."""

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path, packet_bytes=1024).start()
        assert (await ask(harness, "$presence/a")).reason == "topic_name_invalid"
        assert (await ask(harness, "a/%2B")).reason == "topic_name_invalid"
        assert (await ask(harness, body=b"." * 1025)).reason == "packet_too_large"
        assert (await ask(harness, Content_Encoding="gzip")).reason == "content_encoding"
        assert (await harness.request("GET", "/v1/requests/a")).status == 405
        assert await harness.stored() == []
        assert is_idle(harness)

    run(scenario())


def test_a_request_to_an_inbox(tmp_path: Path) -> None:
    """R6: direct, between two clients."""

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path).start()
        await responding(harness, echo, "unused", "van-7")
        found = await ask(harness, "@van-7", b"where")
        assert (found.status, found.body) == (200, b"echo where")

    run(scenario())


def test_requests_at_a_time_get_their_own_replies(tmp_path: Path) -> None:
    """R6: whatever the order of the replies is."""

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path).start()
        waiting: list[Request] = []

        def answer(responder: Responder, request: Request) -> None:
            waiting.append(request)
            if len(waiting) == 20:
                for one in reversed(waiting):
                    responder.reply(one, b"echo " + one.payload)

        await responding(harness, answer)
        found = await asyncio.gather(*(ask(harness, body=b"%d" % n) for n in range(20)))
        assert [answer.body for answer in found] == [b"echo %d" % n for n in range(20)]
        assert len({request.properties["response_topic"] for request in waiting}) == 20
        await until(lambda: is_idle(harness))

    run(scenario())
