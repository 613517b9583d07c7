"""Idempotency-Key: one key of one client makes one message, across retries at once, later, and after a crash (Q1)."""

import asyncio
import socket
import struct
from pathlib import Path

from confluent_kafka import KafkaError

from gateway.shard.spool import Spool
from schemas.identity import derived_message_id
from tests.unit.gateway.http.http_harness import Answer, HttpHarness, run, until


async def keyed(harness: HttpHarness, key: str, body: bytes = b"x", target: str = "a", client: str = "c") -> Answer:
    return await harness.post(target, body, {"X-Client-Id": client, "Idempotency-Key": key})


def test_a_second_request_makes_no_second_message(tmp_path: Path) -> None:
    async def scenario() -> None:
        harness = await HttpHarness(tmp_path).start()
        first, second = await keyed(harness, "k"), await keyed(harness, "k")
        assert [first.status, second.status] == [202, 202]
        assert first.json == second.json == {"id": derived_message_id("http:c", "k")}
        assert "Idempotency-Replayed" not in first.headers
        assert second.headers["Idempotency-Replayed"] == "true"
        assert await harness.stored() == [("a", b"x")]
        other = await keyed(harness, "k", client="d")
        assert other.json != first.json, "a key is its client's own"
        assert len(await harness.stored()) == 2

    run(scenario())


def reset(client: asyncio.StreamWriter) -> None:
    """Ends the connection at once: a client that only closes its side would still be answered."""
    connection = client.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.transport.abort()


def test_requests_at_once_make_one_message(tmp_path: Path) -> None:
    """Also if the first one's client does not wait for its answer."""

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path).start()
        harness.bus.held_stores = {harness.topics.ingress}
        _, first = await asyncio.open_connection("127.0.0.1", harness.port)
        headers = b"X-Client-Id: c\r\nIdempotency-Key: k\r\nContent-Length: 1\r\n\r\nx"
        first.write(b"POST /v1/messages/a HTTP/1.1\r\nHost: localhost\r\n" + headers)
        await until(lambda: harness.bus.in_flight == 1)
        tasks = [asyncio.create_task(keyed(harness, "k")) for _ in range(4)]
        await until(lambda: harness.hosts.http_connections == 5)
        reset(first)
        await until(lambda: harness.hosts.http_connections == 4)
        harness.bus.held_stores = set()
        harness.bus.release()
        answers = await asyncio.gather(*tasks)
        assert {answer.status for answer in answers} == {202}
        assert len({answer.body for answer in answers}) == 1
        assert await harness.stored() == [("a", b"x")]

    run(scenario())


def test_a_key_stands_for_one_message_only(tmp_path: Path) -> None:
    """422, while it is on its way and afterwards, also after a crash."""

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path).start()
        harness.bus.held_acks = {harness.topics.ingress}
        first = asyncio.create_task(keyed(harness, "k"))
        await until(lambda: harness.bus.in_flight)
        assert (await keyed(harness, "k", b"other")).reason == "idempotency_key_reused"
        harness.bus.held_acks = set()
        harness.bus.release()
        assert (await first).status == 202
        assert (await keyed(harness, "k", target="b")).status == 422
        await harness.restart()
        assert (await keyed(harness, "k", b"other")).status == 422
        assert await harness.stored() == [("a", b"x")]

    run(scenario())


def test_a_timed_out_request_can_be_repeated(tmp_path: Path) -> None:
    """Q1: after 503 the message is on its way still: the retry waits for that one."""

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path, {"kafka_timeout_s": 0.05}).start()
        harness.bus.held_stores = {harness.topics.ingress}
        for _ in range(2):
            answer = await keyed(harness, "k")
            assert (answer.status, answer.reason) == (503, "kafka_timeout")
        harness.bus.held_stores = set()
        harness.bus.release()
        assert (await keyed(harness, "k")).status == 202
        assert await harness.stored() == [("a", b"x")]

    run(scenario())


def test_a_refused_message_may_be_sent_again_with_its_key(tmp_path: Path) -> None:
    async def scenario() -> None:
        harness = await HttpHarness(tmp_path).start()
        harness.bus.refused[harness.topics.ingress] = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
        assert (await keyed(harness, "k")).status == 503
        harness.bus.refused.clear()
        answer = await keyed(harness, "k")
        assert answer.status == 202
        assert "Idempotency-Replayed" not in answer.headers

    run(scenario())


def test_a_key_is_known_after_a_crash(tmp_path: Path) -> None:
    """Whether its message was acknowledged or not, and whether a checkpoint had it in the spool or not."""

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path).start()
        await keyed(harness, "in the spool".replace(" ", "-"))
        file = str(harness.spool_directory / f"{harness.shard_of('http:c').number}.sqlite")
        await until(lambda: Spool(file).keyed())
        harness.spool.is_dead = True  # no checkpoint from now on
        await keyed(harness, "behind-the-checkpoint")
        harness.bus.held_acks = {harness.topics.ingress}
        lost = asyncio.create_task(keyed(harness, "never-acknowledged"))
        await until(lambda: len(harness.published()) == 3)
        lost.cancel()
        await harness.restart()
        for key in ("in-the-spool", "behind-the-checkpoint", "never-acknowledged"):
            answer = await keyed(harness, key)
            assert answer.json["id"] == derived_message_id("http:c", key)
            assert answer.headers["Idempotency-Replayed"] == "true"
        await harness.restart()
        assert (await keyed(harness, "never-acknowledged")).headers["Idempotency-Replayed"] == "true"
        assert len(await harness.stored()) == 3

    run(scenario())


def test_subscribers_get_a_keyed_message_once(tmp_path: Path) -> None:
    """M14: over a crash between two requests there is one message; QoS 1 may bring that one again."""

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path).start()
        subscriber = await harness.client("subscriber")
        await subscriber.subscribe("a")
        await keyed(harness, "k")
        await until(lambda: subscriber.got)
        await harness.restart()
        await subscriber.connect()
        await keyed(harness, "k")
        await keyed(harness, "last", b"last")
        await until(lambda: b"last" in subscriber.payloads)
        assert set(subscriber.payloads) == {b"x", b"last"}
        assert len(await harness.stored()) == 2

    run(scenario())


def test_a_retained_message_with_a_key_is_retained_whenever_it_is_stored(tmp_path: Path) -> None:
    """A crash between its two records leaves the later one to the retry, and the retry makes both."""

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path).start()
        harness.bus.held_stores = {harness.topics.ingress}
        lost = asyncio.create_task(keyed(harness, "k", target="a?retain=true"))
        await until(lambda: harness.broker.partitions[harness.topics.retained, 0])
        lost.cancel()
        assert await harness.stored() == []
        await harness.restart()
        answer = await keyed(harness, "k", target="a?retain=true")
        assert "Idempotency-Replayed" not in answer.headers
        assert await harness.stored() == [("a", b"x")]
        late = await harness.client("late")
        await late.subscribe("a")
        await until(lambda: late.got)
        assert [(got.payload, got.retain) for got in late.got] == [(b"x", True)]

    run(scenario())


def test_the_window_of_keys_is_bounded(tmp_path: Path) -> None:
    """The oldest key is forgotten first, in memory and in the spool, and counted; after its time none is known."""

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path, {"idempotency_keys": 3}).start()
        for n in range(5):
            await keyed(harness, f"k{n}")
        assert len(harness.shard_of("http:c").keyed) == 3
        assert harness.node.counts["idempotency_keys_full"] == 2
        kept = {derived_message_id("http:c", f"k{n}") for n in (2, 3, 4)}
        file = str(harness.spool_directory / f"{harness.shard_of('http:c').number}.sqlite")
        await until(lambda: {row[0] for row in Spool(file).keyed()} == kept)
        assert "Idempotency-Replayed" in (await keyed(harness, "k2")).headers
        assert "Idempotency-Replayed" not in (await keyed(harness, "k1")).headers
        harness._http["idempotency_s"] = 0.001
        await harness.restart()
        assert "Idempotency-Replayed" not in (await keyed(harness, "k4")).headers

    run(scenario())
