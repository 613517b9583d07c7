"""What Prometheus reads of an agent (M20): a real scrape of its port."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from edge.agent.agent import Agent
from edge.agent.envelope import File
from edge.agent.errors import ListenerError
from edge.agent.metrics import METRICS, PREFIX, exposition
from edge.agent.metrics_server import MetricsServer
from edge.agent.settings import MetricsSettings, load
from tests.documents import ROOT
from tests.unit.edge.agent.test_mesh_agent import enrolled

HOST = "127.0.0.1"
SETTINGS = """client_id = "a"
[mesh]
enabled = true
port = 0
[uplink]
enabled = true
[[uplink.bearers]]
name = "lan \\"fast\\""
url = "http://127.0.0.1:9"
[metrics]
enabled = true
port = 0
"""


async def answered(port: int, request: bytes) -> tuple[str, str]:
    """The status line of the answer, and its body."""
    reader, writer = await asyncio.open_connection(HOST, port)
    try:
        writer.write(request)
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        return head.partition(b"\r\n")[0].decode(), body.decode()
    finally:
        writer.close()


def samples(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    families = list(text_string_to_metric_families(text))
    assert all(one.documentation and one.type in ("gauge", "counter") for one in families)
    assert len({one.name for one in families}) == len(families)
    return {(one.name, frozenset(one.labels.items())): one.value for found in families for one in found.samples}


def value(found: dict[Any, float], name: str, **labels: str) -> float:
    return found[PREFIX + name, frozenset(labels.items())]


def test_a_scrape_of_an_agent(tmp_path: Path) -> None:
    """M20: what waits, what was accepted, the uplink and its bearers."""
    (tmp_path / "agent.toml").write_text(SETTINGS)
    enrolled(tmp_path / "agent", "a")

    async def run() -> None:
        async with Agent(load(tmp_path / "agent.toml")) as agent:
            get = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"
            await agent._mailroom.send_file("fresh/1", File("1" * 32, "report", b"text"))
            status, body = await answered(agent.metrics_port, get)
            assert status == "HTTP/1.1 200 OK"
            found = samples(body)
            assert value(found, "waiting_messages", way="mesh") == 0  # no gateway's certificate is known yet
            assert value(found, "mesh_waiting_for_keys") == 1
            assert value(found, "steps_total", part="file", event="accepted") == 1
            assert value(found, "uplink_up") == 0
            assert value(found, "bearer_up", bearer='lan "fast"') == 0
            for path, expected in (("/", "404"), ("/metrics?x", "200")):
                assert expected in (await answered(agent.metrics_port, f"GET {path} HTTP/1.1\r\n\r\n".encode()))[0]
            assert "405" in (await answered(agent.metrics_port, b"POST /metrics HTTP/1.1\r\n\r\n"))[0]
            assert "400" in (await answered(agent.metrics_port, b"hello\r\n\r\n"))[0]
            assert "431" in (await answered(agent.metrics_port, b"GET /metrics HTTP/1.1\r\nX: " + bytes(9_000)))[0]

    asyncio.run(run())


def test_its_limits() -> None:
    """A connection that says nothing ends; those beyond the limit are refused; a port is used once."""

    async def text() -> bytes:
        return b"x 1\n"

    async def run() -> None:
        server = MetricsServer(MetricsSettings(port=0, connections=1, timeout_s=0.5), text)
        await server.open()
        other = MetricsServer(MetricsSettings(port=server.port), text)
        with pytest.raises(ListenerError, match=r"metrics\.port"):
            await other.open()
        reader, writer = await asyncio.open_connection(HOST, server.port)
        await asyncio.sleep(0)
        assert await answered(server.port, b"") == ("", "")
        assert await reader.read() == b""
        assert await answered(server.port, b"HEAD /metrics HTTP/1.1\r\n\r\n") == ("HTTP/1.1 200 OK", "")
        writer.close()
        await server.close()

    asyncio.run(run())


def test_every_metric_is_documented() -> None:
    text = (ROOT / "docs" / "agent.md").read_text()
    assert [one.name for one in METRICS if f"`{one.name}`" not in text] == []
    assert f"{PREFIX}steps_total" in exposition({}, {}).decode()
