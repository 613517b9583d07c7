"""How requests over HTTP end, other than by a reply: limits, keys, leaving clients, a gateway that stops (R6)."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.host.authenticator import Credentials
from gateway.http.connection import ends_with_client
from gateway.shard.rules import ClientRules, Everything
from tests.unit.gateway.http.http_harness import HttpHarness, run, until
from tests.unit.gateway.http.responder import (
    Request,
    Responder,
    ask,
    echo,
    is_idle,
    reply_sessions,
    responding,
    silent,
)


def test_the_limit_of_one_client(tmp_path: Path) -> None:
    """429 beyond it; other clients go on. Who has no name counts by its address."""

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path, {"waiting_requests_per_client": 2}).start()
        responder = await responding(harness, silent)
        waiting = [asyncio.create_task(ask(harness, X_Client_Id=name)) for name in ("a", "a", "b")]
        waiting += [asyncio.create_task(ask(harness)) for _ in range(2)]
        await until(lambda: len(responder.requests) == 5)
        for headers in ({"X_Client_Id": "a"}, {}):
            found = await ask(harness, **headers)
            assert (found.status, found.reason) == (429, "too_many_requests_of_client")
            assert found.headers["Retry-After"] == "1"
        for request in responder.requests:
            echo(responder, request)
        assert [answer.status for answer in await asyncio.gather(*waiting)] == [200] * 5
        await until(lambda: is_idle(harness))
        assert len(await harness.stored()) == 10, "what was refused was not sent"

    run(scenario())


def test_the_limit_of_all(tmp_path: Path) -> None:
    """503 beyond it, and messages go on: waiting requests do not count in `requests`."""

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path, {"waiting_requests": 2, "requests": 1}).start()
        responder = await responding(harness, silent)
        waiting = [asyncio.create_task(ask(harness, X_Client_Id=name)) for name in ("a", "b")]
        await until(lambda: len(responder.requests) == 2)
        found = await ask(harness, X_Client_Id="c")
        assert (found.status, found.reason) == (503, "too_many_waiting_requests")
        assert (await harness.post("a")).status == 202
        for request in responder.requests:
            echo(responder, request)
        assert [answer.status for answer in await asyncio.gather(*waiting)] == [200] * 2

    run(scenario())


@pytest.mark.parametrize("closes", [asyncio.StreamWriter.close, asyncio.StreamWriter.write_eof])
def test_a_client_that_leaves_frees_everything(tmp_path: Path, closes: Callable[[asyncio.StreamWriter], None]) -> None:
    """Also one that only closes its sending side. A reply that comes then goes to nobody."""

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path).start()
        responder = await responding(harness, silent)
        head = b"POST /v1/%72equests/service?timeout=300 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\n"
        _, writer = await asyncio.open_connection("127.0.0.1", harness.port)
        writer.write(head + b"x")
        await until(lambda: responder.requests)
        assert not is_idle(harness)
        closes(writer)
        await until(lambda: is_idle(harness))
        echo(responder, responder.requests[0])
        await until(lambda: harness.ids_of(b"echo x") and harness.ids_of(b"echo x") <= harness.completed())
        writer.close()

    run(scenario())


def test_a_client_that_leaves_before_its_body_is_there(tmp_path: Path) -> None:
    async def scenario() -> None:
        harness = await HttpHarness(tmp_path).start()
        _, writer = await asyncio.open_connection("127.0.0.1", harness.port)
        writer.write(b"POST /v1/requests/service HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\n")
        await until(lambda: not is_idle(harness))
        writer.close()
        await until(lambda: is_idle(harness))
        assert await harness.stored() == []

    run(scenario())


def test_paths_that_end_with_their_client() -> None:
    assert ends_with_client("/v1/requests/a")
    assert ends_with_client("/v1/stream")
    assert not ends_with_client("/v1/requests")
    assert not ends_with_client("/v1/messages/v1/requests/a")


def test_a_gateway_that_stops_says_so(tmp_path: Path) -> None:
    async def scenario() -> None:
        harness = await HttpHarness(tmp_path).start()
        responder = await responding(harness, silent)
        waiting = asyncio.create_task(ask(harness))
        await until(lambda: responder.requests)
        await harness.http.stop()
        found = await waiting
        assert (found.status, found.reason) == (503, "server_shutting_down")
        assert found.headers["Retry-After"] == "1"
        assert found.json["detail"].endswith("asking again is safe only with an Idempotency-Key")
        assert is_idle(harness)

    run(scenario())


def test_a_gateway_that_stops_sends_nothing_any_more(tmp_path: Path) -> None:
    """A request that was let in just before."""

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path).start()
        harness.http._requests_handler.stop()
        found = await ask(harness)
        assert (found.status, found.reason) == (503, "server_shutting_down")
        assert "nothing was sent" in found.json["detail"]
        assert is_idle(harness)
        assert await harness.stored() == []

    run(scenario())


def test_a_killed_gateway_leaves_nothing_behind(tmp_path: Path) -> None:
    """G9: the inbox of a request is in no log; a reply to it goes to nobody."""

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path).start()
        responder = await responding(harness, silent)
        waiting = asyncio.create_task(ask(harness))
        await until(lambda: responder.requests)
        await harness.restart()
        await waiting
        assert reply_sessions(harness.home) == []
        await responder.connect()
        echo(responder, responder.requests[0])
        await until(lambda: harness.ids_of(b"echo x") and harness.ids_of(b"echo x") <= harness.completed())

    run(scenario())


def test_an_operator_ends_a_request(tmp_path: Path) -> None:
    async def scenario() -> None:
        harness = await HttpHarness(tmp_path).start()
        responder = await responding(harness, silent)
        waiting = asyncio.create_task(ask(harness))
        await until(lambda: responder.requests)
        [inbox] = reply_sessions(harness.home)
        assert await harness.home.home_of(inbox).kick(inbox)
        found = await waiting
        assert (found.status, found.reason) == (503, "administrative_action")
        assert is_idle(harness)

    run(scenario())


def test_a_key_sends_one_request(tmp_path: Path) -> None:
    """Q1: the repeated one waits for the reply that comes from then on, at the same address."""

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path).start()
        responder = await responding(harness, silent)
        headers = {"X_Client_Id": "c", "Idempotency_Key": "k"}
        found = await ask(harness, "service?timeout=1", **headers)
        assert (found.status, found.reason) == (504, "no_reply")
        assert "Idempotency-Replayed" not in found.headers
        first = found.headers["Request-Message-Id"]
        again = asyncio.create_task(ask(harness, **headers))
        await until(lambda: reply_sessions(harness.home))
        echo(responder, responder.requests[0])
        found = await again
        assert (found.status, found.body, found.headers["Idempotency-Replayed"]) == (200, b"echo x", "true")
        assert found.headers["Request-Message-Id"] == first
        found = await ask(harness, "service?timeout=1", **headers)
        assert (found.status, found.headers["Idempotency-Replayed"]) == (504, "true")
        assert "an earlier reply is not kept" in found.json["detail"]
        assert (await ask(harness, body=b"y", **headers)).reason == "idempotency_key_reused"
        assert len(responder.requests) == 1
        assert (await harness.post("other", headers={"X-Client-Id": "c", "Idempotency-Key": "k"})).status == 202
        assert is_idle(harness)

    run(scenario())


def test_the_same_request_again_while_the_first_one_waits(tmp_path: Path) -> None:
    """409 to the first one; the second gets the reply."""

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path).start()
        responder = await responding(harness, silent)
        headers = {"X_Client_Id": "c", "Idempotency_Key": "k"}
        first = asyncio.create_task(ask(harness, **headers))
        await until(lambda: responder.requests)
        second = asyncio.create_task(ask(harness, **headers))
        found = await first
        assert (found.status, found.reason) == (409, "asked_again")
        await until(lambda: reply_sessions(harness.home))
        echo(responder, responder.requests[0])
        found = await second
        assert (found.status, found.body) == (200, b"echo x")
        assert len(responder.requests) == 1

    run(scenario())


class _ForAWhile:
    """Admits everybody for half a second."""

    def __init__(self, harness: HttpHarness) -> None:
        self._harness = harness

    async def admit(self, credentials: Credentials) -> ClientRules:
        return Everything("ann", self._harness.clock() + 0.5)


def test_credentials_that_end_while_the_request_waits(tmp_path: Path) -> None:
    """R11: as streams, requests end with the token that opened them."""

    async def scenario() -> None:
        harness = HttpHarness(tmp_path)
        harness._authenticator = _ForAWhile(harness)  # type: ignore[assignment]
        await harness.start()
        found = await ask(harness)
        assert (found.status, found.reason) == (403, "not_authorized")
        assert is_idle(harness)

    run(scenario())


def test_a_repeated_request_under_way_is_not_sent_twice(tmp_path: Path) -> None:
    """Q1: both come before Kafka has the message."""

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path).start()
        received: list[Request] = []

        def answer(responder: Responder, request: Request) -> None:
            received.append(request)
            echo(responder, request)

        await responding(harness, answer)
        headers = {"X_Client_Id": "c", "Idempotency_Key": "k"}
        found = await asyncio.gather(*(ask(harness, "service?timeout=1", **headers) for _ in range(3)))
        assert len(received) == 1
        assert {answer.status for answer in found} <= {200, 409, 504}
        assert is_idle(harness)

    run(scenario())


def test_the_metrics_tell_how_requests_end(tmp_path: Path) -> None:
    """Each request has one result."""

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path, {"reply_bytes": 1000, "waiting_requests": 1}).start()
        answers = [b"reply", b"." * 1001, b"", b""]
        responder = await responding(
            harness, lambda r, request: r.reply(request, payload) if (payload := answers.pop(0)) else None
        )
        assert (await ask(harness)).status == 200
        assert (await ask(harness)).status == 502
        waiting = asyncio.create_task(ask(harness, "service?timeout=1"))
        await until(lambda: len(responder.requests) == 3)
        assert harness.hosts.waiting_requests() == 1
        assert (await ask(harness)).status == 503
        assert (await waiting).status == 504
        assert (await ask(harness, "$presence/a")).status == 400
        leaving = asyncio.create_task(ask(harness))
        await until(lambda: len(responder.requests) == 4)
        leaving.cancel()
        await until(lambda: is_idle(harness))
        harness.bus.held_stores = {harness.topics.ingress}
        leaving = asyncio.create_task(ask(harness))
        await until(lambda: reply_sessions(harness.home))
        leaving.cancel()
        await until(lambda: is_idle(harness))
        harness.bus.held_stores = set()
        harness.bus.release()
        assert harness.hosts.waiting_requests() == 0
        found = {word: n for word, n in harness.hosts.counts.items() if word.startswith(("request_", "reply_"))}
        assert found == {
            "request_answered": 1,
            "request_reply_too_large": 1,
            "request_no_reply": 1,
            "request_refused": 2,
            "request_left": 2,
            "reply_written": 1,
            "reply_too_large": 1,
        }

    run(scenario())
