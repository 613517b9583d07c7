"""What the dispatcher shows over HTTP (R1)."""

import asyncio
import re
import socket
from collections import Counter
from pathlib import Path

import pytest

from gateway.dispatch import observer
from gateway.dispatch.observer import DispatcherMetrics, DispatcherObserver
from gateway.observe import http_listener
from schemas.errors import SettingsError
from tests.unit.gateway.dispatch.machine import HOST

ROOT = Path(__file__).parents[4]
COUNTS = Counter({"accepted": 5, "taken": 2, "full": 1, "nobody": 1, "left": 1})


async def answer(port: int, request: bytes) -> tuple[str, str]:
    """The first line, and the body."""
    reader, writer = await asyncio.open_connection(HOST, port)
    writer.write(request)
    head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
    writer.close()
    return head.partition("\r\n")[0], body


def metrics() -> DispatcherMetrics:
    return DispatcherMetrics(COUNTS, lambda: 3, lambda: 2)


def test_metrics_health_and_readiness() -> None:
    async def scenario() -> None:
        faults = {"gateways": "no gateway"}
        shown = DispatcherObserver(metrics(), lambda: faults)
        port = await shown.start(HOST, 0)
        status, body = await answer(port, b"GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: text/plain\r\n\r\n")
        assert status == "HTTP/1.1 200 OK"
        assert "waystation_dispatcher_connections_accepted_total 5.0" in body
        assert 'waystation_dispatcher_connections_ended_total{reason="no_gateway"} 1.0' in body
        assert "waystation_dispatcher_connections_waiting 3.0" in body
        assert (await answer(port, b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")) == ("HTTP/1.1 200 OK", "ok\n")
        status, body = await answer(port, b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert status.startswith("HTTP/1.1 503")
        assert "no gateway" in body
        faults["gateways"] = ""
        assert (await answer(port, b"GET /readyz?x HTTP/1.1\r\nHost: x\r\n\r\n"))[0] == "HTTP/1.1 200 OK"
        assert (await answer(port, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"))[0].startswith("HTTP/1.1 404")
        assert (await answer(port, b"POST /metrics HTTP/1.1\r\nHost: x\r\n\r\n"))[0].startswith("HTTP/1.1 405")
        await shown.stop()

    asyncio.run(scenario())


def test_a_port_that_is_taken_names_its_setting() -> None:
    async def scenario(port: int) -> None:
        with pytest.raises(
            SettingsError, match=rf"gateway\.dispatcher\.metrics_port = {port}: Address already in use; "
        ):
            await DispatcherObserver(metrics(), dict).start(HOST, port)

    with socket.create_server((HOST, 0)) as taken:
        asyncio.run(scenario(taken.getsockname()[1]))


def test_hostile_requests_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_listener, "SILENCE_S", 0.05)
    monkeypatch.setattr(observer, "CONNECTIONS", 2)

    async def scenario() -> None:
        shown = DispatcherObserver(metrics(), dict)
        port = await shown.start(HOST, 0)
        assert (await answer(port, b"x" * 100_000))[0].startswith("HTTP/1.0 400 ")
        assert await answer(port, b"GET /met") == ("", "")
        waiting = [asyncio.open_connection(HOST, port) for _ in range(2)]
        held = await asyncio.gather(*waiting)
        with pytest.raises((ConnectionError, AssertionError)):
            assert (await answer(port, b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"))[0]
        for reader, writer in held:
            assert await reader.read() == b""
            writer.close()
        await shown.stop()

    asyncio.run(scenario())


def test_every_metric_is_in_the_guide() -> None:
    guide = (ROOT / "docs" / "operators.md").read_text()
    for family in metrics().collect():
        name = f"{family.name}_total" if family.type == "counter" else family.name
        assert re.search(rf"`{name}`", guide), name
