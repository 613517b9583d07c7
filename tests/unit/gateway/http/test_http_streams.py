"""GET /v1/stream: delivery, acknowledgement, resumption, and how a stream ends (G8, G9, G11, R12)."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.unit.gateway.http.http_harness import Event, HttpHarness, run, until

NAMED = {"X_Client_Id": "c"}


async def acknowledge(harness: HttpHarness, event: Event | str, client: str = "c") -> Any:
    event_id = event if isinstance(event, str) else event.id
    headers = {"X-Client-Id": client}
    return await harness.request("POST", "/v1/stream/ack", json={"last_event_id": event_id}, headers=headers)


def test_what_is_not_acknowledged_comes_again_and_the_rest_does_not(tmp_path: Path) -> None:
    """G8: resumption by Last-Event-ID; ids stand for all events before them."""

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path).start()
        async with harness.stream("?filter=a/%23", **NAMED) as stream:
            for n in range(6):
                await harness.post("a/b", b"%d" % n)
            events = await stream.events(6)
        async with harness.stream("?filter=a/%23", Last_Event_ID=events[2].id, **NAMED) as stream:
            assert await stream.payloads(3) == ["3", "4", "5"]
        async with harness.stream("?filter=a/%23", **NAMED) as stream:
            again = await stream.events(3)
            assert [event.data["payload"] for event in again] == ["3", "4", "5"]
            assert [event.data["id"] for event in again] == [event.data["id"] for event in events[3:]]
            assert (await acknowledge(harness, again[1])).status == 204
            assert (await acknowledge(harness, again[1])).status == 204, "a second time changes nothing"
            assert (await acknowledge(harness, events[5])).status == 204, (
                "an id of an earlier stream: nothing of this one"
            )
        async with harness.stream("?filter=a/%23", **NAMED) as stream:
            await harness.post("a/b", b"6")
            assert await stream.payloads(2) == ["5", "6"]

    run(scenario())


def test_messages_are_kept_while_no_stream_is_open(tmp_path: Path) -> None:
    """G9: for a client with a name, up to its session's expiry; acknowledging needs no stream."""

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path).start()
        async with harness.stream("?filter=a", **NAMED) as stream:
            await harness.post("a", b"1")
            first = await stream.event()
        await until(lambda: harness.home.session("http:c").link is None)
        assert (await acknowledge(harness, first)).status == 204
        await harness.post("a", b"2")
        await harness.post("a?qos=0", b"not kept")
        async with harness.stream("?filter=a", **NAMED) as stream:
            await harness.post("a?qos=0", b"3")
            assert await stream.payloads(2) == ["2", "3"]

    run(scenario())


def test_streams_share_a_subscription(tmp_path: Path) -> None:
    """R6: each event to one of two streams; what one did not acknowledge goes to the other when it ends."""

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path).start()
        shared = "?filter=$share/g/a/%23"
        async with harness.stream(shared, X_Client_Id="d") as other:
            async with harness.stream(shared, **NAMED) as stream:
                for n in range(6):
                    await harness.post("a/b", b"%d" % n)
                events = await stream.events(3)
                got = {event.data["payload"] for event in (*events, *await other.events(3))}
                assert got == {"0", "1", "2", "3", "4", "5"}
                assert (await acknowledge(harness, events[1])).status == 204
            assert await other.payloads(1) == [events[2].data["payload"]]

    run(scenario())


def test_a_session_survives_a_crash_of_the_gateway(tmp_path: Path) -> None:
    """G8, G9: subscriptions and what is not acknowledged; ids from before the crash acknowledge nothing."""

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path).start()
        async with harness.stream("?filter=a/%23", **NAMED) as stream:
            await harness.post("a/1", b"1")
            await harness.post("@http%3Ac?qos=1", b"2")
            events = await stream.events(2)
            assert sorted(event.data["payload"] for event in events) == ["1", "2"]
            await harness.restart()
        assert (await acknowledge(harness, events[1])).status == 404
        async with harness.stream("?filter=a/%23", Last_Event_ID=events[1].id, **NAMED) as stream:
            again = await stream.events(2)
            assert {event.data["id"] for event in again} == {event.data["id"] for event in events}
            assert (await acknowledge(harness, events[1])).reason == "unknown_event"
            assert (await acknowledge(harness, again[1])).status == 204
        async with harness.stream("?filter=a/%23", **NAMED) as stream:
            await harness.post("a/1", b"3")
            assert await stream.payloads(1) == ["3"]

    run(scenario())


def test_a_full_window_waits_for_acknowledgements_and_says_so(tmp_path: Path) -> None:
    """G8: nothing is lost meanwhile, and order is kept."""

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path, {"stream_window": 3, "heartbeat_s": 0.05}).start()
        async with harness.stream("?filter=a", **NAMED) as stream:
            for n in range(8):
                await harness.post("a", b"%d" % n)
            events = await stream.events(3)
            while "not acknowledged" not in await stream.comment():
                pass
            await acknowledge(harness, events[1])
            assert await stream.payloads(2) == ["3", "4"]
        async with harness.stream("?filter=a&acknowledge=written", **NAMED) as stream:
            assert await stream.payloads(6) == ["2", "3", "4", "5", "6", "7"]
        await until(lambda: not harness.home.session("http:c").in_flight)

    run(scenario())


def test_a_nameless_stream_acknowledges_by_itself_and_leaves_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        harness = await HttpHarness(tmp_path, {"stream_window": 2}).start()
        async with harness.stream("?filter=a") as stream:
            for n in range(10):
                await harness.post("a", b"%d" % n)
            assert await stream.payloads(10) == [str(n) for n in range(10)]
            [session] = [s for shard in harness.home.states for s in shard.sessions.values()]
            assert session.client.startswith("http:auto-")
        await until(lambda: not any(shard.sessions for shard in harness.home.states))
        answer = await harness.request("POST", "/v1/stream/ack", json={"last_event_id": "0" * 16 + "-1"})
        assert (answer.status, answer.reason) == (404, "no_stream")

    run(scenario())


def test_a_message_of_qos_2_to_an_inbox_is_acknowledged_for_good(tmp_path: Path) -> None:
    """G8: the exchange with the home is brought to its end, by an acknowledgement and by Last-Event-ID."""

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path).start()
        sender = await harness.client("sender")
        async with harness.stream("", **NAMED) as stream:
            for n in range(3):
                sender.publish("@http:c", b"%d" % n, 2)
            events = await stream.events(3)
            assert [event.data["qos"] for event in events] == [2, 2, 2]
            await acknowledge(harness, events[0])
            session = harness.home.session("http:c")
            await until(lambda: len(session.in_flight) == 2)
        await until(lambda: session.link is None)
        await acknowledge(harness, events[1])
        await until(lambda: [delivery.released for delivery in session.in_flight.values()] == [True, False])
        async with harness.stream("", **NAMED) as stream:
            assert await stream.payloads(1) == ["2"]
            await until(lambda: len(session.in_flight) == 1)
        async with harness.stream("", Last_Event_ID=events[2].id, **NAMED) as stream:
            again = await stream.event()
            assert again.data["payload"] == "2", "its id of an earlier stream means nothing in a later one"
        async with harness.stream("", Last_Event_ID=again.id, **NAMED) as stream:
            await until(lambda: not session.in_flight)
            sender.publish("@http:c", b"3", 1)
            assert await stream.payloads(1) == ["3"]

    run(scenario())


def test_one_stream_a_client(tmp_path: Path) -> None:
    """MQTT 5.0, 3.1.4: the later one takes over, the earlier one is told."""

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path).start()
        async with harness.stream("?filter=a", **NAMED) as first, harness.stream("?filter=a", **NAMED) as second:
            [last] = await first.rest()
            assert (last.kind, last.data) == ("end", {"reason": "session_taken_over"})
            await harness.post("a", b"1")
            assert await second.payloads(1) == ["1"]
        events = harness.presence("http:c")
        assert [(e.event, e.reason) for e in events][:3] == [
            ("connected", ""),
            ("lost", "session_taken_over"),
            ("connected", ""),
        ]
        await until(lambda: len(harness.presence("http:c")) == 4)
        assert (harness.presence("http:c")[3].event, harness.presence("http:c")[3].reason) == (
            "disconnected",
            "stream_closed",
        )
        assert harness.hosts.counts["closed_session_taken_over"] == 1

    run(scenario())


def test_the_filters_of_the_latest_request_are_the_subscriptions(tmp_path: Path) -> None:
    async def scenario() -> None:
        harness = await HttpHarness(tmp_path).start()
        await harness.post("kept/1?retain=true", b"retained")
        async with harness.stream("?filter=kept/%2B&filter=old&filter=old&client=c") as stream:
            event = await stream.event()
            assert (event.data["payload"], event.data["retain"]) == ("retained", True)
            await acknowledge(harness, event)
        async with harness.stream("?filter=kept/%2B&filter=new", **NAMED) as stream:
            assert set(harness.home.session("http:c").subscriptions) == {"kept/+", "new"}
            await harness.post("old", b"old")
            await harness.post("new", b"new")
            assert await stream.payloads(1) == ["new"], "no retained message a second time, nothing of the old filter"

    run(scenario())


def test_a_stream_ends_when_its_time_is_over(tmp_path: Path) -> None:
    """`wait`: what is there comes, then the stream ends without a word; the next one goes on."""

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path).start()
        async with harness.stream("?filter=a&wait=0.05", **NAMED) as stream:
            assert await stream.rest() == []
        await harness.post("a", b"1")
        await until(lambda: harness.home.session("http:c").queued)
        async with harness.stream("?filter=a&wait=0.05", **NAMED) as stream:
            assert [event.data["payload"] for event in await stream.rest()] == ["1"]
        await until(lambda: harness.hosts.counts["closed_stream_closed"] == 2)

    run(scenario())


def test_a_client_that_leaves_while_its_session_is_opened(tmp_path: Path) -> None:
    """R12: the session is left without a link, and the next stream finds it."""

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path).start()
        harness.bus.held_acks = {harness.topics.sessions}
        opening = asyncio.create_task(harness.request("GET", "/v1/stream?filter=a&client=c"))
        await until(lambda: harness.bus.in_flight)
        opening.cancel()
        await until(lambda: not harness.hosts.http_connections)
        harness.bus.held_acks = set()
        harness.bus.release()
        await until(lambda: [e.event for e in harness.presence("http:c")] == ["connected", "lost"])
        await until(lambda: "a" in harness.home.session("http:c").subscriptions)
        assert harness.home.session("http:c").link is None
        await harness.post("a", b"1")
        async with harness.stream("?filter=a", **NAMED) as stream:
            assert await stream.payloads(1) == ["1"]

    run(scenario())


def test_kafka_away_while_a_session_is_opened(tmp_path: Path) -> None:
    async def scenario() -> None:
        harness = await HttpHarness(tmp_path, {"kafka_timeout_s": 0.05}).start()
        harness.bus.held_acks = {harness.topics.sessions}
        answer = await harness.request("GET", "/v1/stream?filter=a&client=c")
        assert (answer.status, answer.reason) == (503, "kafka_timeout")
        harness.bus.held_acks = set()
        harness.bus.release()
        async with harness.stream("?filter=a", **NAMED) as stream:
            await harness.post("a", b"1")
            assert await stream.payloads(1) == ["1"]

    run(scenario())


@pytest.mark.parametrize(
    ("query", "status", "reason"),
    [
        ("?filter=a/+", 400, "ambiguous_filter"),
        ("?filter=a%23", 400, "topic_filter_invalid"),
        ("?filter=", 400, "topic_filter_invalid"),
        ("?qos=2", 400, "malformed_parameter"),
        ("?acknowledge=never", 400, "malformed_parameter"),
        ("?wait=0", 400, "malformed_parameter"),
        ("?wait=nan", 400, "malformed_parameter"),
        ("?colour=red", 400, "unknown_parameter"),
        ("?client=", 400, "client_identifier_not_valid"),
        ("?client=c&filter=%40alice", 403, "not_authorized"),
        ("?client=c&filter=$share/g/%40http:c", 403, "not_authorized"),
        ("?client=c&filter=a&filter=b&filter=c", 429, "quota_exceeded"),
    ],
)
def test_refused_streams_leave_no_session(tmp_path: Path, query: str, status: int, reason: str) -> None:
    async def scenario() -> None:
        harness = await HttpHarness(tmp_path, subscriptions=2).start()
        answer = await harness.request("GET", f"/v1/stream{query}")
        assert (answer.status, answer.reason) == (status, reason)
        await until(lambda: not any(shard.sessions for shard in harness.home.states))

    run(scenario())


def test_a_reader_that_stops_reading_is_waited_for_then_let_go(tmp_path: Path) -> None:
    """Back-pressure: what it does not take stays in its session; after write_timeout_s the stream ends (R12)."""

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path, {"write_timeout_s": 0.3}, write_buffer_bytes=100_000).start()
        reader, writer = await asyncio.open_connection("127.0.0.1", harness.port, limit=1024)
        writer.write(b"GET /v1/stream?client=c&filter=a HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await reader.readuntil(b"\n\n")
        session = harness.home.session("http:c")
        for n in range(20):
            await harness.post("a", b"%03d" % n + b"." * 500_000)
        await until(lambda: session.link is None)
        assert harness.hosts.counts["closed_stream_stalled"] == 1
        writer.transport.abort()
        harness._http["write_timeout_s"] = 60.0
        await harness.restart()
        async with harness.stream("?filter=a", **NAMED) as stream:
            assert [payload[:3] for payload in await stream.payloads(20)] == [f"{n:03d}" for n in range(20)]

    run(scenario())


def test_a_gateway_that_stops_says_so(tmp_path: Path) -> None:
    async def scenario() -> None:
        harness = await HttpHarness(tmp_path).start()
        async with harness.stream("?filter=a", **NAMED) as stream:
            stopping = asyncio.create_task(harness.http.stop())
            [last] = await stream.rest()
            assert last.data == {"reason": "server_shutting_down"}
            await stopping
        assert harness.presence("http:c")[-1].reason == "server_shutting_down"

    run(scenario())
