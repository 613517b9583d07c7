"""The relays of a gateway: which clients are relayed, and the end of those whose home has changed (G14)."""

import ssl

from gateway.host.close_reasons import RELAYED
from gateway.host.connection import Transport
from gateway.host.home_calls import HomeCalls
from gateway.host.homes import Homes
from gateway.host.host_server import HostServer
from gateway.host.relay import EPOCH, MOVED, Relay
from mqtt.packets import Connect


class Relays:
    """`tls`: how this gateway proves to other members who it is; None in tests only."""

    def __init__(self, server: HostServer, homes: Homes, tls: ssl.SSLContext | None) -> None:
        self._server, self._homes, self._tls = server, homes, tls
        self._open: set[Relay] = set()
        self.calls = HomeCalls(homes, tls, server.limits.connect_timeout_s, server.counts)
        """Requests to other gateways, for clients that are not relayed."""

    def __len__(self) -> int:
        return len(self._open)

    def take(self, transport: Transport, connect: Connect, first: bytes) -> Relay | None:
        """What carries the client from now on; None if its home is here, or nobody has its shard. `first`: all bytes
        that it has sent."""
        where = self._homes.elsewhere(connect.client_id)
        if where is None:
            return None
        relay = Relay(
            self._server,
            transport,
            self._homes,
            self._tls,
            connect.client_id,
            first,
            connect.version,
            self._ended,
        )
        self._open.add(relay)
        self._server.spawn(relay.begin(where))
        return relay

    def refusal(self, client: str) -> bytes | None:
        """What to answer a relayed connection of a client whose home is not here; None if it is."""
        if self._homes.elsewhere(client) is None:
            return None
        return MOVED + EPOCH.pack(self._homes.epoch(client))

    def owner_changed(self, shard: int) -> None:
        """Another gateway has the shard now: clients that are relayed to its former home come back."""
        for relay in [one for one in self._open if one.shard == shard]:
            relay.home_lost()
        self.calls.owner_changed(shard)

    def _ended(self, relay: Relay) -> None:
        """The connection has ended."""
        self._open.discard(relay)
        self._server.gone(relay, RELAYED)
