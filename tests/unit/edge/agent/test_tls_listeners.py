"""Listeners whose connections begin with TLS, and programs that speak none (M2, M16)."""

import asyncio
import ssl
from pathlib import Path
from typing import Any

import pytest

from schemas import password_file
from tests.unit.edge.agent.agent_harness import HOST, settings
from tests.unit.edge.agent.test_agent import NOBODY, agent, ask, complete
from tests.unit.gateway.host.quic_client import trust


@pytest.mark.parametrize("kind", ["mqtt", "smtp"])
@pytest.mark.parametrize("first", [b"", b"EHLO x\r\n"], ids=["nothing", "no TLS"])
def test_a_connection_without_tls_takes_no_place_once_it_has_ended(tmp_path: Path, kind: str, first: bytes) -> None:
    """A port scanner, or a program with other settings. It counts as long as a handshake may take."""
    (tmp_path / "users").write_text(password_file.with_user("", "ann", password_file.hasher().hash("right")))
    trusted = trust(tmp_path)
    tls = ssl.create_default_context(cafile=str(trusted.authority.file))
    listener: dict[str, Any] = {
        "enabled": True,
        "port": 0,
        "connections": 2,
        "password_file": str(tmp_path / "users"),
        "certificate_file": trusted.settings["certificate"],
        "key_file": trusted.settings["key"],
    }
    submission = {**listener, "tls": "tls", "timeout_s": 2.0}
    tables: dict[str, Any] = {
        "mqtt": {"mqtt": {"routes": {"#": "platform"}, "listener": {**listener, "connect_timeout_s": 2.0}}},
        "smtp": {"smtp": {"routes": {"b.example": "far"}, "submission": submission}},
    }[kind]

    async def run() -> None:
        found = settings(tmp_path / "a", platform={"connect_points": [NOBODY]}, **tables)
        async with agent(found) as one:
            port = one.mqtt_port or one.submission_port
            for _ in range(2):
                reader, writer = await asyncio.open_connection(HOST, port)
                writer.write(first)
                if first:
                    await reader.read()
                writer.close()
            table = "submission" if kind == "smtp" else "mqtt"
            while (await ask(found, "status"))[table]["connections"]:
                await asyncio.sleep(0.05)
            reader, writer = await asyncio.open_connection(HOST, port, ssl=tls, server_hostname="localhost")
            if kind == "smtp":
                assert (await reader.readline()).startswith(b"220 ")
            else:
                writer.write(b"\xc0\x00")  # PINGREQ before CONNECT
                assert not await reader.read()
            writer.close()

    complete(run())
