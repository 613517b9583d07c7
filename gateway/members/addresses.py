"""The addresses that a gateway advertises to clients, by bearer: as configured, else those of its listeners (G1).
Pure: what the machine is called comes in."""

from collections.abc import Mapping
from ipaddress import ip_address

from schemas.member_settings import host_port
from schemas.members import BEARERS, CONSOLE, GatewayAddress
from schemas.settings import GatewaySettings

_LISTENERS = {"ws": "websocket"}
"""Listeners that are not called after their bearer."""


def advertised(settings: GatewaySettings, ports: Mapping[str, int], machine: str) -> dict[str, GatewayAddress]:
    """By bearer, and in a cluster also CONSOLE. `ports` are those of the open listeners; `machine` is the name of this
    machine, used if the gateway listens on all its addresses and `advertise.host` is empty.

    A bearer may be advertised without a listener: a proxy may end TLS. A listener that takes connections with a PROXY
    header only is not for clients, so it is advertised only as configured.
    """
    advertise = settings.advertise
    host = advertise.host or (machine if _is_wildcard(settings.host) else settings.host)
    found: dict[str, GatewayAddress] = {}
    for bearer in BEARERS:
        configured = advertise.address(bearer)
        port = ports.get(_LISTENERS.get(bearer, bearer))
        if configured is not None:
            found[bearer] = configured
        elif port is not None and not (bearer == "mqtt" and settings.proxy_protocol):
            found[bearer] = GatewayAddress(host, port)
    if settings.cluster.enabled and settings.console.enabled:
        console = advertise.address(CONSOLE)
        if console is not None:
            found[CONSOLE] = console
        elif "metrics" in ports:
            found[CONSOLE] = GatewayAddress(host, ports["metrics"])
    return found


def advertised_to_members(settings: GatewaySettings, port: int, machine: str) -> GatewayAddress:
    """Where other gateways reach the listener for them, which has `port`."""
    cluster = settings.cluster
    host = cluster.members_host or settings.host
    own = settings.advertise.host or (machine if _is_wildcard(host) else host)
    return host_port(cluster.advertise_members) or GatewayAddress(own, port)


def _is_wildcard(host: str) -> bool:
    """Whether a listener on `host` takes connections to any address of the machine."""
    try:
        return not host or ip_address(host).is_unspecified
    except ValueError:
        return False
