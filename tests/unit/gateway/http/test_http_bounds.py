"""Limits of HTTP clients while Kafka is away or slow, and streams that another one has taken over (R9, R11)."""

import asyncio
from pathlib import Path

import pytest

from gateway.http.event_window import StreamWindow
from gateway.http.stream_link import Pace, StreamLink
from gateway.shard.arrivals import Arrival
from gateway.shard.messages import Delivery, Message, PendingMessage
from tests.unit.gateway.http.http_harness import HttpHarness, Stream, run, until

NAMED = {"X_Client_Id": "c"}


def test_bytes_in_flight_are_limited_over_http(tmp_path: Path) -> None:
    """limits.in_flight_bytes: with Kafka away, what HTTP clients post must not pile up."""

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path, {"kafka_timeout_s": 0.05}, in_flight_bytes=1_000).start()
        harness.bus.held_stores = {harness.topics.ingress}
        answers = [await harness.post("a", b"." * 600) for _ in range(6)]
        reasons, piled = [answer.reason for answer in answers], harness.home.in_flight_bytes
        harness.bus.held_stores = set()
        harness.bus.release()
        await until(lambda: not harness.bus.in_flight)
        assert "too_many_in_flight" in reasons
        assert piled <= 1_300

    run(scenario())


@pytest.mark.parametrize(
    ("topic", "headers"),
    [("a", {"User-Property": "name=" + "v" * 600}), ("t" * 600, {})],
    ids=["properties", "topic"],
)
def test_bytes_beside_the_payload_count(tmp_path: Path, topic: str, headers: dict[str, str]) -> None:
    """limits.in_flight_bytes: what a message is made of takes memory, wherever it stands in it."""

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path, {"kafka_timeout_s": 0.05}, in_flight_bytes=1_000).start()
        harness.bus.held_stores = {harness.topics.ingress}
        answers = [await harness.post(topic, b"", headers) for _ in range(4)]
        harness.bus.held_stores = set()
        harness.bus.release()
        await until(lambda: not harness.bus.in_flight)
        assert [answer.reason for answer in answers] == ["kafka_timeout"] * 2 + ["too_many_in_flight"] * 2
        assert harness.home.in_flight_bytes == 0
        assert (await harness.post(topic, b"", headers)).status == 202

    run(scenario())


def test_posts_while_kafka_is_away_do_not_end_the_gateway(tmp_path: Path) -> None:
    """The producer's queue (1 GiB, here: 5 records) is full of posts: the next record of the session log is refused."""

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path, {"kafka_timeout_s": 0.05}, in_flight_bytes=1_000).start()
        device = await harness.client("device")
        harness.bus.capacity = 5
        harness.bus.held_stores = {harness.topics.ingress}
        for _ in range(6):
            await harness.post("a", b"." * 600)
        device.lose()
        await asyncio.sleep(0.05)
        fatal = list(harness.fatal)
        harness.bus.capacity = None
        harness.bus.held_stores = set()
        harness.bus.release()
        await until(lambda: not harness.bus.in_flight)
        harness.fatal.clear()
        assert not fatal

    run(scenario())


def test_a_superseded_stream_does_not_take_the_filters_of_the_next(tmp_path: Path) -> None:
    """The client opens a stream, changes its mind and opens another one while the first is still being set up."""

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path).start()
        async with harness.stream("?filter=b", **NAMED):
            pass
        await until(lambda: harness.home.session("http:c").link is None)
        harness.bus.held_acks = {harness.topics.routes}
        opening = asyncio.create_task(harness.request("GET", "/v1/stream?filter=new/a&client=c"))
        await until(lambda: harness.home.session("http:c").link is not None and harness.bus.in_flight)
        opening.cancel()  # `EventSource.close()`
        async with harness.stream("?filter=b", **NAMED) as stream:
            assert set(harness.home.session("http:c").subscriptions) == {"b"}
            harness.bus.held_acks = set()
            harness.bus.release()
            await asyncio.sleep(0.2)
            assert set(harness.home.session("http:c").subscriptions) == {"b"}
            await harness.post("b", b"1")
            async with asyncio.timeout(3):
                assert await stream.payloads(1) == ["1"]

    run(scenario())


def test_a_superseded_stream_does_not_forget_what_the_next_has_sent(tmp_path: Path) -> None:
    """Both clients stay; the second one acknowledges what it got, and must get more."""

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path, {"stream_window": 3}).start()
        async with harness.stream("?filter=b", **NAMED):
            pass
        await until(lambda: harness.home.session("http:c").link is None)
        harness.bus.held_acks = {harness.topics.routes}
        headers = {"X-Client-Id": "c"}
        url = harness.url("/v1/stream?filter=b&filter=new/a")
        opening = asyncio.create_task(harness.session.get(url, headers=headers).__aenter__())
        await until(lambda: harness.home.session("http:c").link is not None and harness.bus.in_flight)
        async with harness.stream("?filter=b", **NAMED) as stream:
            for n in range(5):
                await harness.post("b", b"%d" % n)
            events = await stream.events(3)
            harness.bus.held_acks = set()
            harness.bus.release()
            first = Stream(await opening)
            assert [event.kind for event in await first.rest()] == ["end"]
            answer = await harness.request(
                "POST", "/v1/stream/ack", json={"last_event_id": events[2].id}, headers=headers
            )
            assert answer.status == 204
            async with asyncio.timeout(3):
                assert await stream.payloads(2) == ["3", "4"]

    run(scenario())


def test_messages_without_payload_count_towards_the_buffer_of_a_stream(tmp_path: Path) -> None:
    """QoS 0 is not bounded by the window: a client that reads slowly must not make the gateway grow."""

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path).start()
        link = StreamLink(harness.hosts, 262_144, 100, True)
        link._is_open = True
        properties = b"x" * 1_000
        for n in range(20_000):
            message = Message(str(n), "s", "t", b"", 0, False, None, properties, 0, n, 0)
            pending = PendingMessage(message, 0, -1, 0.0, [])
            if not link.writable:
                break
            link.deliver(message, Delivery("c", pending, 0, False, ()))
        assert not link.writable

    run(scenario())


def test_a_stream_ends_in_time_however_fast_messages_come(tmp_path: Path) -> None:
    """`wait`: there is always another message. What the stream has taken is written."""

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path).start()
        link = StreamLink(harness.hosts, 262_144, 100, True)
        attached = await harness.home.attach(Arrival("http:c", False, 60, None, 10, "peer", "http"), link)
        link.attach(attached)
        link.open(StreamWindow())
        taken, written = 0, bytearray()

        class FastSender:
            async def write(self, data: bytes) -> None:
                nonlocal taken
                written.extend(data)
                await asyncio.sleep(0)
                if link.writable:
                    taken += 1
                    message = Message(str(taken), "s", "t", b"", 0, False, None, b"", 0, taken, 0)
                    link.deliver(message, Delivery("c", PendingMessage(message, 0, -1, 0.0, []), 0, False, ()))

        sender = FastSender()
        await sender.write(b"")
        async with asyncio.timeout(5):
            await link.write_to(sender, Pace(1.0, 10.0, asyncio.get_running_loop().time() + 0.05))
        assert written.count(b"event: message") == taken > 1

    run(scenario())


def test_sessions_are_limited_over_http(tmp_path: Path) -> None:
    """limits.sessions: named streams have persistent sessions, which would keep MQTT clients out."""

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path, sessions=2).start()
        answers = [await harness.request("GET", f"/v1/stream?client=c{n}&wait=0.01") for n in range(5)]
        assert harness.home.sessions <= 2
        assert [answer.status for answer in answers[:2]] == [200, 200]
        assert {answer.status for answer in answers[2:]} == {429}

    run(scenario())


def test_a_foreign_page_does_not_take_over_a_stream(tmp_path: Path) -> None:
    """An image of another page names no origin, but browsers say where it comes from."""

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path).start()
        async with harness.stream("?filter=a", **NAMED) as stream:
            answer = await harness.request(
                "GET", "/v1/stream?client=c&acknowledge=written&wait=0.1", headers={"Sec-Fetch-Site": "cross-site"}
            )
            assert answer.status == 403
            await harness.post("a", b"1")
            async with asyncio.timeout(3):
                assert await stream.payloads(1) == ["1"]

    run(scenario())
