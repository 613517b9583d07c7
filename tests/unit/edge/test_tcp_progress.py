"""What a peer has taken of what was written: only what has reached it, with TLS or without."""

import asyncio
import ssl
import sys
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from edge.link import Address, open_link
from harness.keys import Authority
from mqtt.client_limits import ClientLimits
from tests.faithful_client import eventually

HOST = "127.0.0.1"
WRITTEN = 32_000_000  # more than both systems keep of a connection
KEPT_MOST = WRITTEN // 2


class Unread(asyncio.Protocol):
    """A server that reads nothing until it is told to."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        transport.pause_reading()  # type: ignore[attr-defined]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux counts what is acknowledged")
@pytest.mark.parametrize("uses_tls", [False, True])
def test_only_what_the_peer_has_taken_counts(tmp_path: Path, uses_tls: bool) -> None:
    serving = trusting = None
    if uses_tls:
        authority = Authority(tmp_path)
        own = authority.sign("gateway")
        serving, trusting = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), ssl.create_default_context()
        serving.load_cert_chain(own.certificate, own.key)
        trusting.load_verify_locations(authority.file)
        trusting.check_hostname = False

    async def run() -> None:
        peers: list[Unread] = []

        def accepted() -> Unread:
            peers.append(Unread())
            return peers[-1]

        server = await asyncio.get_running_loop().create_server(accepted, HOST, 0, ssl=serving)
        link = await open_link(Address(HOST, server.sockets[0].getsockname()[1], trusting), MagicMock(), ClientLimits())
        await eventually(lambda: bool(peers) and hasattr(peers[0], "transport"), "the server has the connection")
        link.write(bytes(WRITTEN))
        waiting, taken = link.progress
        assert waiting
        assert taken < KEPT_MOST
        peers[0].transport.resume_reading()  # type: ignore[attr-defined]
        await eventually(lambda: link.progress[0] == 0, "the server has read it")
        assert link.progress[1] >= WRITTEN
        link.abort()
        server.close()

    asyncio.run(asyncio.wait_for(run(), 30))
