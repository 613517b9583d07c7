"""Requests over HTTP end as soon as the platform knows who has got them (R6, Q13)."""

import asyncio
import base64
from pathlib import Path

import msgspec
import pytest

from schemas.envelope import Meta, ingress_headers
from schemas.events import ProgressEvent
from schemas.identity import inbox_of, new_message_id, partition_of
from schemas.origin import PLATFORM_FLAG
from schemas.receipts import RECEIPTS_SOURCE, ReceiptRequest, receipt_payload
from tests.unit.gateway.http.http_harness import HttpHarness, Stream, run, until
from tests.unit.gateway.http.responder import ask, echo, is_idle, responding, silent
from tests.unit.gateway.shard.home_harness import PARTITIONS


def asked(harness: HttpHarness) -> list[ProgressEvent]:
    return [event for event in harness.events() if event.kind == "asked"]


def send_receipt(harness: HttpHarness, recipients: int) -> None:
    """As the ledger does it: to whom the last receipt is for."""
    event = asked(harness)[-1]
    assert isinstance(event.receipt, ReceiptRequest)
    request, outcomes = event.receipt, {"delivered": recipients} if recipients else {}
    payload = receipt_payload(event.id, request.kind, outcomes, 0, is_complete=True)
    meta = Meta(1, PLATFORM_FLAG, None, int(harness.clock() * 1e6), None)
    headers = ingress_headers(new_message_id(), RECEIPTS_SOURCE, meta, base64.b64decode(request.properties))
    partition, key = partition_of(request.to, PARTITIONS), inbox_of(request.to).encode()
    harness.bus.produce(
        harness.topics.ingress, partition, key, msgspec.json.encode(payload), headers, lambda *_: None
    )  # fmt: skip


def test_a_request_that_nobody_has_got_is_answered_at_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        harness = await HttpHarness(tmp_path).start()
        asking = asyncio.create_task(ask(harness, "nobody?timeout=300"))
        await until(lambda: asked(harness))
        send_receipt(harness, 0)
        found = await asking
        assert (found.status, found.reason) == (404, "not_received")
        assert found.headers["Request-Message-Id"] == asked(harness)[0].id
        await until(lambda: is_idle(harness))

    run(scenario())


def test_the_request_says_nothing_of_it_to_responders(tmp_path: Path) -> None:
    """And its caller's own receipts are its own."""

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path).start()
        responder = await responding(harness)
        assert (await ask(harness, "service?timeout=300", User_Property="a=b")).status == 200
        assert responder.requests[0].properties["user_property"] == [("a", "b")]

    run(scenario())


@pytest.mark.parametrize("receipt_first", [False, True])
def test_all_replies_end_with_that_of_the_last_receiver(tmp_path: Path, receipt_first: bool) -> None:
    async def scenario() -> None:
        harness = await HttpHarness(tmp_path).start()
        await responding(harness, echo, name="r1")
        late = await responding(harness, silent if receipt_first else echo, name="r2")
        url = harness.url("/v1/requests/service?replies=all&timeout=300")
        async with harness.session.post(url, data=b"x") as response:
            stream = Stream(response)
            events = await stream.events(1 if receipt_first else 2)
            send_receipt(harness, 2)
            if receipt_first:
                late.reply(late.requests[0], b"late")
                events += await stream.events(1)
            [end] = await stream.events(1)
        assert len(events) == 2
        assert (end.kind, end.data) == ("end", {"reason": "complete", "replies": 2, "receivers": 2})
        await until(lambda: is_idle(harness))

    run(scenario())


def test_a_stream_of_replies_that_nobody_sends_ends_too(tmp_path: Path) -> None:
    async def scenario() -> None:
        harness = await HttpHarness(tmp_path).start()
        url = harness.url("/v1/requests/service?replies=all&timeout=300")
        async with harness.session.post(url, data=b"x") as response:
            send_receipt(harness, 0)
            [end] = await Stream(response).events(1)
        assert end.data == {"reason": "not_received", "replies": 0, "receivers": 0}

    run(scenario())
