"""POST /v1/messages/…: what comes to subscribers, and what is answered when (G11, Q1)."""

import asyncio
import base64
from pathlib import Path

import pytest
from confluent_kafka import KafkaError

from tests.unit.gateway.http.http_harness import HttpHarness, run, until


def test_a_message_reaches_mqtt_with_its_properties(tmp_path: Path) -> None:
    """G11: content type, expiry, response topic, correlation data, user properties in their order."""

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path).start()
        subscriber = await harness.client("subscriber")
        await subscriber.subscribe("a/#")
        answer = await harness.post(
            "a/b?expiry=60&response_topic=answers%2Fhere",
            b"hello",
            {
                "Content-Type": "text/plain",
                "Correlation-Data": base64.b64encode(b"\0\xff").decode(),
                "User-Property": "one=1, two=b%2C%3D%C3%A9, one=",
            },
        )
        assert answer.status == 202
        await until(lambda: subscriber.got)
        [got] = subscriber.got
        assert (got.topic, got.payload, got.qos, got.retain) == ("a/b", b"hello", 1, False)
        assert set(harness.published()) == {answer.json["id"]}
        async with harness.stream("?filter=a/b") as stream:
            await harness.post("a/b?retain=true&expiry=3600&response_topic=r%2F1", b"\xff\0", {"Content-Type": "x/y"})
            event = await stream.event()
        assert 3000 < event.data["properties"].pop("expiry") <= 3600
        assert event.data["properties"] == {"content_type": "x/y", "response_topic": "r/1"}
        assert (event.data["payload"], event.data["encoding"]) == (base64.b64encode(b"\xff\0").decode(), "base64")

    run(scenario())


def test_properties_come_out_of_a_stream_as_they_went_in(tmp_path: Path) -> None:
    async def scenario() -> None:
        harness = await HttpHarness(tmp_path).start()
        async with harness.stream("?filter=a") as stream:
            answer = await harness.post(
                "a",
                "é".encode(),
                {
                    "Content-Type": "text/plain; charset=utf-8",
                    "Correlation-Data": "AP8=",
                    "User-Property": "one=1, two=b%2C%3D%C3%A9, one=",
                },
            )
            event = await stream.event()
        assert event.data == {
            "id": answer.json["id"],
            "topic": "a",
            "payload": "é",
            "encoding": "text",
            "qos": 1,
            "retain": False,
            "properties": {
                "content_type": "text/plain; charset=utf-8",
                "correlation_data": "AP8=",
                "user_properties": [["one", "1"], ["two", "b,=é"], ["one", ""]],
            },
        }

    run(scenario())


@pytest.mark.parametrize(
    ("target", "topic"),
    [
        ("a/b", "a/b"),
        ("a%2Fb", "a/b"),
        ("a%2fb", "a/b"),
        ("../a/./b", "../a/./b"),
        ("a%3Fqos=7", "a?qos=7"),
        ("a%0Ab", "a\nb"),
        ("%25FF", "%FF"),
        ("/" * 4000, "/" * 4000),
        ("/a//b/", "/a//b/"),
        ("a%20b%25", "a b%"),
        ("a+b", None),
        ("%C3%A9%F0%9F%9B%AB", "é🛫"),
        ("%40client", "@client"),
        ("a%2", None),
        ("a%zz", None),
        ("a%C3", None),
        ("%FF", None),
        ("a%00", None),
        ("a/%23", None),
        ("", None),
    ],
)
def test_a_destination_is_decoded_once_and_exactly(tmp_path: Path, target: str, topic: str | None) -> None:
    async def scenario() -> None:
        harness = await HttpHarness(tmp_path).start()
        answer = await harness.post(target)
        if topic is None:
            assert answer.status == 400
            assert answer.reason in ("topic_name_invalid", "malformed_encoding")
        assert await harness.stored() == ([] if topic is None else [(topic, b"x")])

    run(scenario())


@pytest.mark.parametrize(
    ("target", "headers", "reason"),
    [
        ("a?qos=2", {}, "malformed_parameter"),
        ("a?qos=1&qos=1", {}, "repeated_parameter"),
        ("a?retain=yes", {}, "malformed_parameter"),
        ("a?expiry=4294967296", {}, "malformed_parameter"),
        ("a?expiry=-1", {}, "malformed_parameter"),
        ("a?response_topic=b/%23", {}, "topic_name_invalid"),
        ("a?color=red", {}, "unknown_parameter"),
        ("a?qos=%FF", {}, "malformed_encoding"),
        ("a", {"Correlation-Data": "?"}, "malformed_header"),
        ("a", {"User-Property": "nameless"}, "malformed_header"),
        ("a", {"User-Property": "a=%00"}, "malformed_header"),
        ("a", {"User-Property": "a=%ff"}, "malformed_encoding"),
        ("a", {"X-Client-Id": "a/b"}, "client_identifier_not_valid"),
        ("a", {"Idempotency-Key": "a b", "X-Client-Id": "c"}, "malformed_idempotency_key"),
        ("a", {"Idempotency-Key": "key"}, "nameless_client"),
    ],
)
def test_bad_requests_say_what_is_wrong(tmp_path: Path, target: str, headers: dict[str, str], reason: str) -> None:
    async def scenario() -> None:
        harness = await HttpHarness(tmp_path).start()
        answer = await harness.post(target, headers=headers)
        assert (answer.status, answer.reason) == (400, reason)
        assert await harness.stored() == []

    run(scenario())


def test_nothing_is_answered_before_kafka_has_it(tmp_path: Path) -> None:
    """Q1, also for the retained copy."""

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path).start()
        harness.bus.held_acks = {harness.topics.ingress, harness.topics.retained}
        posts = [asyncio.create_task(harness.post(target)) for target in ("a", "a?qos=0", "a?retain=true")]
        await until(lambda: harness.bus.in_flight == 3)
        assert not any(post.done() for post in posts)
        harness.bus.held_acks = {harness.topics.retained}
        harness.bus.release()
        assert [(await post).status for post in posts[:2]] == [202, 202]
        assert not posts[2].done()
        harness.bus.held_acks = set()
        harness.bus.release()
        assert (await posts[2]).status == 202

    run(scenario())


def test_kafka_away_is_said_in_time_and_that_the_message_may_be_stored(tmp_path: Path) -> None:
    """Q1: 503 is no promise that nothing happened."""

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path, {"kafka_timeout_s": 0.05}).start()
        harness.bus.held_stores = {harness.topics.ingress}
        answer = await harness.post("a")
        assert (answer.status, answer.reason) == (503, "kafka_timeout")
        assert "may still be stored" in answer.json["detail"]
        assert answer.headers["Retry-After"]
        harness.bus.held_stores = set()
        harness.bus.release()
        await until(lambda: not harness.bus.in_flight)
        assert await harness.stored() == [("a", b"x")]

    run(scenario())


def test_what_kafka_or_a_limit_refuses_has_a_status(tmp_path: Path) -> None:
    """Q1: refused for good 503, no room 429, too much on the way 503 before anything is stored."""

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path, retained_messages=1, in_flight_messages=1).start()
        await until(lambda: not harness.bus.in_flight)  # what the start has written
        harness.bus.refused[harness.topics.ingress] = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
        assert (await harness.post("a")).reason == "unspecified_error"
        harness.bus.refused.clear()
        harness.bus.refused[harness.topics.retained] = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
        assert (await harness.post("a?retain=true")).reason == "unspecified_error"
        harness.bus.refused.clear()
        assert await harness.stored() == []
        assert (await harness.post("a?retain=true")).status == 202
        await until(lambda: len(harness.node.retained) == 1)
        answer = await harness.post("b?retain=true")
        assert (answer.status, answer.reason) == (429, "quota_exceeded")
        harness.bus.held_stores = {harness.topics.ingress}
        first = asyncio.create_task(harness.post("a", b"first"))
        await until(lambda: harness.bus.in_flight)
        answer = await harness.post("a", b"second")
        assert (answer.status, answer.reason) == (503, "too_many_in_flight")
        harness.bus.held_stores = set()
        harness.bus.release()
        assert (await first).status == 202
        assert [payload for _, payload in await harness.stored()] == [b"x", b"first"]

    run(scenario())


def test_what_one_client_posts_comes_in_its_order(tmp_path: Path) -> None:
    """R8: across topics, also among requests at once, in the order in which they are answered."""

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path).start()
        async with harness.stream("?filter=%23") as stream:
            for n in range(20):
                assert (await harness.post(f"t/{n % 3}", b"%d" % n)).status == 202
            assert await stream.payloads(20) == [str(n) for n in range(20)]

    run(scenario())


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("application/x-www-form-urlencoded", None),
        ("Application/X-WWW-Form-URLencoded", None),
        ("application/x-www-form-urlencoded; charset=utf-8", "application/x-www-form-urlencoded; charset=utf-8"),
        ("text/plain", "text/plain"),
    ],
)
def test_what_curl_says_of_any_body_is_no_content_type(tmp_path: Path, given: str, expected: str | None) -> None:
    async def scenario() -> None:
        harness = await HttpHarness(tmp_path).start()
        async with harness.stream("?filter=a") as stream:
            assert (await harness.post("a", b"x", {"Content-Type": given})).status == 202
            event = await stream.event()
        assert event.data.get("properties", {}).get("content_type") == expected

    run(scenario())
