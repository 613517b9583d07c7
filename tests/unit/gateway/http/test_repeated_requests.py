"""Requests over HTTP that are sent again, because no reply has come in time (R6)."""

import asyncio
from pathlib import Path

import pytest

from schemas.envelope import Meta
from tests.unit.gateway.http.http_harness import HttpHarness, run, until
from tests.unit.gateway.http.responder import Request, Responder, ask, echo, is_idle, responding, silent
from tests.unit.gateway.shard.home_harness import PARTITIONS

REPEATED = ("request-repeated", "true")


def hesitant(responder: Responder, request: Request) -> None:
    """Answers what it is asked again."""
    if REPEATED in request.properties.get("user_property", ()):
        echo(responder, request)


def test_the_next_receiver_gets_it(tmp_path: Path) -> None:
    """R6: if the first one does not answer. It is marked, and no receipt is asked for it."""

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path).start()
        members = [await responding(harness, hesitant, "$share/g/service", name) for name in ("one", "two")]
        found = await ask(harness, "service?timeout=60&again_after=1", User_Property="a=b,receipt=read")
        assert (found.status, found.body) == (200, b"echo x")
        assert [len(member.requests) for member in members] == [1, 1]
        had = [member.requests[0] for member in members]
        second, first = sorted(had, key=lambda request: REPEATED not in request.properties["user_property"])
        assert first.properties["user_property"] == [("a", "b"), ("receipt", "read")]
        assert second.properties["user_property"] == [("a", "b"), REPEATED]
        for name in ("response_topic", "correlation_data"):
            assert first.properties[name] == second.properties[name]
        assert len([event for event in harness.events() if event.kind == "asked"]) == 1
        ingress = [r for p in range(PARTITIONS) for r in harness.broker.partitions[harness.topics.ingress, p]]
        sent = [Meta.decode(dict(r.headers() or [])["meta"]) for r in ingress if r.key() == b"service"]
        ends = [meta.expires or 0 for meta in sent]
        assert len(ends) == 2
        assert abs(ends[0] - ends[1]) <= 1000, "nobody answers in vain"
        assert found.headers["Request-Message-Id"] in harness.ids_of(b"x")
        assert harness.hosts.counts["repeated_requests"] == 1
        await until(lambda: is_idle(harness))

    run(scenario())


@pytest.mark.parametrize("headers", [{}, {"Idempotency_Key": "k", "X_Client_Id": "c"}])
def test_it_is_sent_again_until_the_time_is_over(tmp_path: Path, headers: dict[str, str]) -> None:
    """R6: also with a key, which is for the first time only."""

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path).start()
        responder = await responding(harness, silent)
        found = await ask(harness, "service?timeout=3&again_after=1", **headers)
        assert (found.status, found.reason) == (504, "no_reply")
        marks = [REPEATED in request.properties.get("user_property", ()) for request in responder.requests]
        assert marks == [False, True, True]
        await until(lambda: is_idle(harness))

    run(scenario())


def test_a_reply_to_the_first_one_counts_too(tmp_path: Path) -> None:
    async def scenario() -> None:
        harness = await HttpHarness(tmp_path).start()
        responder = await responding(harness, silent)
        asking = asyncio.create_task(ask(harness, "service?timeout=60&again_after=1"))
        await until(lambda: len(responder.requests) == 2)
        responder.reply(responder.requests[0], b"late")
        assert (await asking).body == b"late"

    run(scenario())
