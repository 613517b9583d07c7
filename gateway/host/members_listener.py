"""Opens the listener for connections that other gateways relay (G14, R11; :mod:`gateway.host.relayed`)."""

import socket

from gateway.host.listeners import Listeners
from gateway.host.member_tls import MemberTls
from gateway.members.addresses import advertised_to_members
from gateway.members.table import MemberTable
from schemas.members import GatewayAddress
from schemas.sections import OFF
from schemas.settings import GatewaySettings


async def open_members_listener(
    listeners: Listeners, settings: GatewaySettings, tls: MemberTls | None, members: MemberTable
) -> GatewayAddress | None:
    """Opens it if gateways share shards; returns where others reach it, for the heartbeats. None if it is off. With
    TLS only gateways that are in `members` get in. Raises SettingsError for an address that cannot be used."""
    cluster = settings.cluster
    if not cluster.enabled or cluster.members_port == OFF:
        return None
    host = cluster.members_host or settings.host
    port = await listeners.open_members(
        host, cluster.members_port, tls, lambda name: name != settings.name and members.get(name) is not None
    )
    return advertised_to_members(settings, port, socket.gethostname())
