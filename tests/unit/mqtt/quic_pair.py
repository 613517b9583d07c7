"""A client's and a server's end of a QUIC connection, wired together in memory. The test moves the time."""

import functools
import tempfile
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from harness.keys import Authority
from mqtt.quic_stream import QuicStream, configuration

CLIENT, SERVER = ("192.0.2.1", 1000), ("192.0.2.2", 14567)
WINDOW = 32_768
IDLE_S = 60.0


class QuicPair:
    """`client_settings` change those of the client. Until `is_cut` is set, what one end sends the other receives;
    `client_address` is where the server sees the client."""

    def __init__(self, *, asks_certificate: bool = False, **client_settings: Any) -> None:
        authority, certificate, key = _credentials()
        ours = configuration(is_client=True, window=WINDOW, idle_timeout_s=IDLE_S)
        ours.server_name = "localhost"
        ours.load_verify_locations(cadata=authority)
        for name, value in client_settings.items():
            setattr(ours, name, value)
        theirs = configuration(is_client=False, window=WINDOW, idle_timeout_s=IDLE_S)
        theirs.certificate, theirs.private_key = certificate, key
        self.now = 0.0
        self.client_address = CLIENT
        self.is_cut = False
        self.routes: dict[bytes, bool] = {}
        self.client = QuicStream(ours)
        self.server = QuicStream(
            theirs,
            asks_certificate=asks_certificate,
            route=self.routes.__setitem__,
            original_destination_connection_id=self.client._quic.original_destination_connection_id,
        )
        self.client.connect(SERVER, self.now)

    def exchange(self, for_s: float = 1.0) -> None:
        """Runs both ends for a time: datagrams take no time, timers run when they are due."""
        end_at = self.now + for_s
        while True:
            self._pass_on()
            deadlines = [at for end in (self.client, self.server) if (at := end.deadline()) is not None]
            if not deadlines or min(deadlines) > end_at:
                self.now = end_at
                return
            self.now = max(self.now, min(deadlines))
            for end in (self.client, self.server):
                if (at := end.deadline()) is not None and at <= self.now:
                    end.tick(self.now)

    def _pass_on(self) -> None:
        while True:
            to_server = self.client.outgoing(self.now)
            # aioquic's server has nothing to send, and no timer, before its first datagram.
            to_client = self.server.outgoing(self.now) if self.server.deadline() is not None else []
            if not to_server and not to_client:
                break
            for datagram, _ in [] if self.is_cut else to_server:
                self.server.receive(datagram, self.client_address, self.now)
            for datagram, address in [] if self.is_cut else to_client:
                if address == self.client_address:
                    self.client.receive(datagram, SERVER, self.now)
            self.client.advance()
            self.server.advance()
        self.client.advance()
        self.server.advance()


@functools.cache
def _credentials() -> tuple[bytes, x509.Certificate, Any]:
    with tempfile.TemporaryDirectory() as directory:
        authority = Authority(Path(directory))
        signed = authority.sign("server")
        certificate = x509.load_pem_x509_certificate(signed.certificate.read_bytes())
        return authority.file.read_bytes(), certificate, load_pem_private_key(signed.key.read_bytes(), None)
