"""Settings of a gateway among others: `[gateway.cluster]`, `[gateway.access_point]`, `[gateway.advertise]` (G1, G2,
G12, G14). `conf/base.toml` documents every key."""

from typing import Annotated, Literal

from msgspec import Meta

from schemas.errors import SettingsError
from schemas.leases import MOST_STANDBYS
from schemas.members import BEARERS, GatewayAddress
from schemas.sections import ListenerPort, Natural, Seconds, Section

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
    `standby_session_bytes`: of memory for the session records of all shards that this gateway keeps warm."""

    enabled: bool
    standbys: Annotated[int, Meta(ge=0, le=MOST_STANDBYS)]
    standby_session_bytes: Natural
    zone: Zone
    heartbeat_s: Seconds
    timeout_s: Seconds
    members: Annotated[int, Meta(ge=1, le=1000)]
    links: LinkSettings


class AccessPointSettings(Section, frozen=True, kw_only=True):
    enabled: bool
    strategy: Strategy
    equal_within: Annotated[float, Meta(ge=0, le=1)]
    fresh_s: Natural


class AdvertiseSettings(Section, frozen=True, kw_only=True):
    """`host` for all bearers; the others have the names of bearers (:data:`schemas.members.BEARERS`)."""

    host: HostName
    mqtt: HostPort
    mqtts: HostPort
    ws: HostPort
    wss: HostPort
    http: HostPort
    https: HostPort
    quic: HostPort

    def address(self, bearer: str) -> GatewayAddress | None:
        """The address set for a bearer, None if none is. Raises ValueError for a port of 0 or above 65535."""
        return address_of(getattr(self, bearer))


def address_of(text: str) -> GatewayAddress | None:
    """The address in a :data:`HostPort`, None if it is empty. Raises ValueError for a port of 0 or above 65535."""
    if not text:
        return None
    host, _, port = text.rpartition(":")
    if not 1 <= int(port) <= 65535:
        raise ValueError(f"{port} is not a port")
    return GatewayAddress(host.strip("[]"), int(port))


def check_members(cluster: GatewayClusterSettings, advertise: AdvertiseSettings) -> None:
    """The rules between keys. Raises SettingsError."""
    if cluster.timeout_s < 3 * cluster.heartbeat_s:
        raise SettingsError(
            f"gateway.cluster.timeout_s = {cluster.timeout_s:g} is too short: a few late heartbeats would take a "
            f"gateway off the list; allowed: at least three times gateway.cluster.heartbeat_s = "
            f"{3 * cluster.heartbeat_s:g}"
        )
    texts = {f"gateway.advertise.{bearer}": getattr(advertise, bearer) for bearer in BEARERS}
    for key, text in {**texts, "gateway.cluster.links.advertise": cluster.links.advertise}.items():
        try:
            address_of(text)
        except ValueError as error:
            raise SettingsError(f"{key} = {text!r}: {error}; a port is a number from 1 to 65535") from error
