"""What a request's link does with deliveries, without a request (R6, G6)."""

import asyncio
from pathlib import Path

from gateway.http.reply_link import Reply, ReplyLink, TooLarge
from gateway.shard.messages import Delivery, Message, PendingMessage
from mqtt.codes import PacketType, ReasonCode
from mqtt.properties import encode_properties
from tests.unit.gateway.http.http_harness import HttpHarness, run

CORRELATION = b"c" * 16


def reply(number: int, payload: bytes = b"", correlation: bytes = CORRELATION) -> tuple[Message, Delivery]:
    """At QoS 0: no session is needed."""
    properties = encode_properties({"correlation_data": correlation}, PacketType.PUBLISH)
    message = Message(str(number), "s", "@t", payload, 0, False, None, properties, 0, number, 0)
    return message, Delivery("t", PendingMessage(message, 0, -1, 0.0, []), 0, False, ())


def opened(harness: HttpHarness, most: int | None = None, reply_bytes: int = 1000) -> ReplyLink:
    link = ReplyLink(harness.hosts, CORRELATION, reply_bytes, most)
    link._is_open = True
    return link


def test_nothing_is_written_while_the_process_may_not_send(tmp_path: Path) -> None:
    """G6: what waits is given once the leases are verified; if they are lost, never."""

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path).start()
        hold, now = harness.hosts.hold, asyncio.get_running_loop().time
        for is_lost in (False, True):
            link = opened(harness)
            hold.hold()
            assert link.deliver(*reply(1))
            assert await link.take(now()) == []
            taking = asyncio.create_task(link.take(now() + 60))
            await asyncio.sleep(0)
            if is_lost:
                link.disconnect(ReasonCode.SERVER_MOVED)
            hold.resume()
            assert len(await taking) == (0 if is_lost else 1)
            assert link.ended == (ReasonCode.SERVER_MOVED if is_lost else None)

    run(scenario())


def test_what_came_before_the_end_is_given(tmp_path: Path) -> None:
    async def scenario() -> None:
        harness = await HttpHarness(tmp_path).start()
        link, later = opened(harness), asyncio.get_running_loop().time() + 60
        link.deliver(*reply(1))
        link.disconnect(ReasonCode.SERVER_SHUTTING_DOWN)
        link.disconnect(ReasonCode.SERVER_MOVED)
        assert [one.message.id for one in await link.take(later) if isinstance(one, Reply)] == ["1"]
        assert await link.take(later) == []
        assert link.ended is ReasonCode.SERVER_SHUTTING_DOWN

    run(scenario())


def test_what_waits_is_limited(tmp_path: Path) -> None:
    """limits.write_buffer_bytes, also of replies without payload and of those that are too large."""

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path, write_buffer_bytes=65_536).start()
        for payload in (b"", b"." * 2000):
            link = opened(harness)
            for number in range(1000):
                if not link.writable:
                    break
                link.deliver(*reply(number, payload))
            assert not link.writable
            taken = await link.take(0)
            assert all(isinstance(one, TooLarge if payload else Reply) for one in taken)
            assert link.writable

    run(scenario())


def test_what_is_no_reply_takes_no_memory(tmp_path: Path) -> None:
    async def scenario() -> None:
        harness = await HttpHarness(tmp_path).start()
        link = opened(harness, most=1)
        for number in range(100):
            assert not link.deliver(*reply(number, correlation=b"w" * (number % 20)))
        assert link.deliver(*reply(100))
        assert not link.deliver(*reply(101)), "one too many"
        assert len(await link.take(0)) == 1
        assert harness.hosts.counts["reply_dropped"] == 101
        link.leave()
        assert link.deliver(*reply(102)), "the session ends: there is nothing to do"
        assert await link.take(0) == []

    run(scenario())
