"""Settings of a gateway among others: `[gateway.cluster]`, `[gateway.access_point]`, `[gateway.advertise]` (G1, G2,
G12, G14). `conf/base.toml` documents every key."""

from typing import Annotated, Literal

from msgspec import Meta

from schemas.errors import SettingsError
from schemas.leases import MOST_STANDBYS
from schemas.members import BEARERS, CONSOLE, GatewayAddress
from schemas.sections import OFF, ListenerPort, Natural, NotNegative, Port, Positive, Seconds, Section
from schemas.this_machine import is_loopback

Strategy = Literal["connections", "cpu", "memory"]

HostPort = Annotated[
    str,
    Meta(
        pattern=r"^(|[A-Za-z0-9._-]{1,255}:[0-9]{1,5}|\[[0-9A-Fa-f:.]{2,45}\]:[0-9]{1,5})\Z",
        description='"host:port", such as "mqtt.example.org:1883" or "[2001:db8::1]:1883"; empty: host and listener',
    ),
]
HostName = Annotated[
    str,
    Meta(
        pattern=r"^([A-Za-z0-9._-]{0,255}|[0-9A-Fa-f:.]{2,45})\Z",
        description="a host name or an IP address, without a port; empty: gateway.host",
    ),
]
Zone = Annotated[str, Meta(max_length=64, description="text, at most 64 characters")]


class LinkSettings(Section, frozen=True, kw_only=True):
    """The listener for links of other gateways (Q6); `advertise`: where they reach it, if that is elsewhere."""

    host: HostName
    port: ListenerPort
    advertise: HostPort


class GatewayClusterSettings(Section, frozen=True, kw_only=True):
    """`enabled`: the gateways of the site share its shards (G14); `standbys`: how many keep each shard warm (Q6);
    `standby_session_bytes`: of memory for the session records of all shards that this gateway keeps warm.

    `members_…`: of the listener that takes connections of other gateways. `server_reference`: whether clients that say
    that they follow a Server Reference are sent to their home, instead of being relayed there. `sockets`: the directory
    in which the processes of a machine reach one another (R1, R5); empty: they pass no sockets.

    `start_s`: how long the others leave a shard to a gateway that starts it and makes progress (Q7).

    `ramp_connects_per_s`: the first rate of new connections after a member was lost, 0 for no bound; within `ramp_s` it
    grows; who would wait for longer than `ramp_wait_s` is refused (R9).
    """

    enabled: bool
    standbys: Annotated[int, Meta(ge=0, le=MOST_STANDBYS)]
    standby_session_bytes: Natural
    zone: Zone
    heartbeat_s: Seconds
    timeout_s: Seconds
    members: Annotated[int, Meta(ge=1, le=1000)]
    members_host: HostName
    members_port: ListenerPort
    advertise_members: HostPort
    members_certificate: str
    members_key: str
    members_ca: str
    server_reference: bool
    sockets: str
    start_s: Seconds
    ramp_connects_per_s: NotNegative
    ramp_s: Seconds
    ramp_wait_s: Seconds
    links: LinkSettings

    @property
    def members_files(self) -> tuple[str, str, str]:
        """Certificate, key and authorities for connections between gateways; all empty without TLS."""
        return self.members_certificate, self.members_key, self.members_ca


class DispatcherSettings(Section, frozen=True, kw_only=True):
    """Of the process that accepts MQTT over TCP for all gateways of a machine (R1). `connections`: the most that no
    gateway has yet; `connect_timeout_s`: how long it waits to learn who a client is."""

    host: HostName
    port: Port
    metrics_port: ListenerPort
    connections: Positive
    connect_timeout_s: Seconds


class AccessPointSettings(Section, frozen=True, kw_only=True):
    enabled: bool
    strategy: Strategy
    equal_within: Annotated[float, Meta(ge=0, le=1)]
    fresh_s: Natural


class AdvertiseSettings(Section, frozen=True, kw_only=True):
    """`host` for all bearers; the others have the names of bearers (:data:`schemas.members.BEARERS`), and `console` is
    where operators reach the console."""

    host: HostName
    mqtt: HostPort
    mqtts: HostPort
    ws: HostPort
    wss: HostPort
    http: HostPort
    https: HostPort
    quic: HostPort
    console: HostPort

    def address(self, bearer: str) -> GatewayAddress | None:
        """The address set for a bearer or CONSOLE, None if none is. Raises ValueError for a port of 0 or above
        65535."""
        return host_port(getattr(self, bearer))


def host_port(text: str) -> GatewayAddress | None:
    """The address in a :data:`HostPort`, None if that is empty. Raises ValueError for a port of 0 or above 65535."""
    if not text:
        return None
    host, _, port = text.rpartition(":")
    if not 1 <= int(port) <= 65535:
        raise ValueError(f"{port} is not a port")
    return GatewayAddress(host.strip("[]"), int(port))


def check_members(host: str, cluster: GatewayClusterSettings, advertise: AdvertiseSettings) -> None:
    """The rules between keys; `host` is `gateway.host`. Raises SettingsError."""
    if cluster.timeout_s < 3 * cluster.heartbeat_s:
        raise SettingsError(
            f"gateway.cluster.timeout_s = {cluster.timeout_s:g} is too short: a few late heartbeats would take a "
            f"gateway off the list; allowed: at least three times gateway.cluster.heartbeat_s = "
            f"{3 * cluster.heartbeat_s:g}"
        )
    addresses = {f"advertise.{each}": getattr(advertise, each) for each in (*BEARERS, CONSOLE)}
    addresses["cluster.advertise_members"] = cluster.advertise_members
    addresses["cluster.links.advertise"] = cluster.links.advertise
    for key, text in addresses.items():
        try:
            host_port(text)
        except ValueError as error:
            raise SettingsError(f"gateway.{key} = {text!r}: {error}; a port is a number from 1 to 65535") from error
    _check_members_listener(host, cluster)


def _check_members_listener(host: str, cluster: GatewayClusterSettings) -> None:
    files = cluster.members_files
    if any(files) and not all(files):
        raise SettingsError(
            "gateway.cluster.members_certificate, members_key and members_ca belong together: set all three, or none"
        )
    address = cluster.members_host or host
    if cluster.enabled and cluster.members_port != OFF and not any(files) and not is_loopback(address):
        raise SettingsError(
            f"other machines can reach the listener for gateways at {address!r}, and whoever connects there is taken "
            "for a gateway: set gateway.cluster.members_certificate, members_key and members_ca, or "
            'gateway.cluster.members_host = "127.0.0.1" if all gateways of the site are on this machine'
        )
