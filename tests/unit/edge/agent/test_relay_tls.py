"""The relay over TLS (M16): the server's certificate is verified, and nothing that should have TLS is sent without."""

import asyncio
import ssl
from pathlib import Path
from typing import Any

import pytest

from harness.keys import Authority, Signed
from tests.unit.edge.agent.agent_harness import Clock, StockServer
from tests.unit.edge.agent.test_relay import CONTENT, MAIL, Rig, complete

TAKEN = [("ann@a.example", ["bob@b.example"], CONTENT)]
OTHER_HOST = "127.0.0.2"  # for which no certificate is


def context(signed: Signed) -> ssl.SSLContext:
    found = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    found.load_cert_chain(signed.certificate, signed.key)
    return found


async def relayed(directory: Path, server: StockServer, **options: Any) -> str:
    """Why the mail waits; nothing if it was relayed."""
    rig = Rig(directory / "relay", server.port, Clock(), **options)
    await rig.relay.take(MAIL)
    await rig.steps()
    problem, waits = rig.relay.last_problem, rig.store.status()["messages"]
    rig.store.close()
    assert bool(waits) is bool(problem)
    return problem


@pytest.mark.parametrize("tls", ["starttls", "tls"])
def test_to_a_server_whose_certificate_verifies(tmp_path: Path, tls: str) -> None:
    authority = Authority(tmp_path)
    how: dict[str, Any] = (
        {"tls": context(authority.sign("mail"))}
        if tls == "tls"
        else {"tls_context": context(authority.sign("mail")), "require_starttls": True}
    )

    async def run() -> None:
        async with StockServer(**how) as server:
            assert await relayed(tmp_path, server, tls=tls, ca_file=str(authority.file)) == ""
            assert server.taken == TAKEN

    complete(run())


@pytest.mark.parametrize("tls", ["starttls", "tls"])
@pytest.mark.parametrize("wrong", ["authority", "system", "name"])
def test_a_certificate_that_does_not_verify(tmp_path: Path, tls: str, wrong: str) -> None:
    """Of another authority, also than the system's; or for another name. The mail waits, with the reason."""
    authority = Authority(tmp_path)
    trusted = {"authority": str(Authority(tmp_path, "another").file), "system": "", "name": str(authority.file)}[wrong]
    made = context(authority.sign("mail"))
    how: dict[str, Any] = {"tls": made} if tls == "tls" else {"tls_context": made}
    host = OTHER_HOST if wrong == "name" else "127.0.0.1"

    async def run() -> None:
        async with StockServer(host=host, **how) as server:
            problem = await relayed(tmp_path, server, host=host, tls=tls, ca_file=trusted)
            assert "certificate" in problem.lower()
            assert server.taken == []

    complete(run())


def test_a_server_without_starttls_gets_nothing(tmp_path: Path) -> None:
    """Somebody on the way may have removed it from what the server offers."""
    authority = Authority(tmp_path)

    async def run() -> None:
        async with StockServer() as server:
            problem = await relayed(tmp_path, server, tls="starttls", ca_file=str(authority.file))
            assert "STARTTLS" in problem
            assert server.taken == []

    complete(run())


def test_a_server_that_requires_tls_gets_nothing_without(tmp_path: Path) -> None:
    authority = Authority(tmp_path)

    async def run() -> None:
        server_tls = context(authority.sign("mail"))
        async with StockServer(tls_context=server_tls, require_starttls=True) as server:
            rig = Rig(tmp_path / "relay", server.port, Clock())
            await rig.relay.take(MAIL)
            await asyncio.wait_for(rig.steps(), 30)
            assert server.taken == []
            rig.store.close()

    complete(run())
