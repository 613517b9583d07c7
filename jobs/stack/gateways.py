"""The gateways of a local stack: their parts, names, ports and environments (G14), and the dispatcher (R1).

The first gateway is the part `gateway`, with the name and the ports of the configuration: a stack with one gateway has
that and nothing else. The others are `gateway-2`, `gateway-3`, …, with names made from the first's, and with free ports
that are remembered. With them comes the part `dispatcher`, which has the configured port for MQTT; the first gateway
then has a free one too.

Gateways that share their shards write epochs, by which later ones recognise what counts. A gateway that does not share
its shards writes none. So a data directory in which several gateways have run stays a cluster, however many run next.
"""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jobs.stack.ports import Ports
from jobs.stack.state import StackState
from schemas.members import BEARERS
from schemas.readiness import read_json, read_ready, write_json
from schemas.settings import GatewaySettings

FIRST = "gateway"
DISPATCHER = "dispatcher"
MOST = 16
FILE = "gateways.json"
_PREFIX = "WAYSTATION_GATEWAY__"

PortMap = Mapping[str, int | str]
"""By setting below `gateway`, such as `tls.mqtts_port`, a port or "off"."""


class _Listener(NamedTuple):
    """A listener under the name by which the gateway announces it, and its setting below `gateway`."""

    name: str
    setting: str
    is_udp: bool = False


_MEMBERS = _Listener("relay", "cluster.members_port")
"""For other gateways only: it is opened by gateways that share their shards."""

_LISTENERS = (
    _Listener("mqtt", "mqtt_port"),
    _Listener("websocket", "websocket_port"),
    _Listener("http", "http_port"),
    _Listener("mqtts", "tls.mqtts_port"),
    _Listener("wss", "tls.wss_port"),
    _Listener("https", "tls.https_port"),
    _Listener("quic", "tls.quic_port", is_udp=True),
    _Listener("metrics", "metrics_port"),
    _MEMBERS,
)


class LocalGateway(NamedTuple):
    """A gateway of a local stack. `env`: what its part has in its environment in addition to the other parts'."""

    part: str
    name: str
    env: Mapping[str, str]

    @property
    def is_behind_dispatcher(self) -> bool:
        """Whether it would have the configured port for MQTT, and the dispatcher has it instead."""
        return self.part == FIRST and f"{_PREFIX}MQTT_PORT" in self.env


def part_names(count: int) -> list[str]:
    return [FIRST, *(f"{FIRST}-{number}" for number in range(2, count + 1))]


def gateway_names(first: str, count: int) -> list[str]:
    """Names of `count` gateways: `gateway-1`, `gateway-2`, …, or `paris`, `paris-2`, … The first one stays as it is, so
    that its spool and its presence stay its own."""
    stem, dash, number = first.rpartition("-")
    is_numbered = bool(dash) and number.isascii() and number.isdecimal()
    base, begin = (stem, int(number)) if is_numbered else (first, 1)
    return [first, *(f"{base}-{begin + n}" for n in range(1, count))]


def has_been_cluster(data: Path) -> bool:
    """Whether several gateways have run in this directory."""
    return (read_json(data / FILE) or {}).get("cluster") is True


def remember_cluster(data: Path) -> None:
    write_json(data / FILE, {"cluster": True})


def choose_ports(
    gateway: GatewaySettings, ports: Ports, free_ports: bool, count: int, is_cluster: bool
) -> tuple[PortMap, ...]:
    """For each gateway the ports that differ from the configured ones: of the first only that for other gateways, and
    that for MQTT if there is a dispatcher.

    Raises PortTaken.
    """
    if not is_cluster:
        return ({},)
    members = _configured(gateway, _MEMBERS.setting)
    first: dict[str, int | str] = {}
    if isinstance(members, int):
        setting = f"gateway.{_MEMBERS.setting}"
        first[_MEMBERS.setting] = ports.choose(_MEMBERS.name, gateway.host, 0 if free_ports else members, setting)
    if has_dispatcher(gateway, count):
        first["mqtt_port"] = ports.choose(f"{FIRST}-mqtt", gateway.host, 0, "gateway.mqtt_port")
    return (first, *(_free_ports(gateway, ports, part) for part in part_names(count)[1:]))


def has_dispatcher(gateway: GatewaySettings, count: int) -> bool:
    """Whether a stack with so many gateways has one."""
    return count > 1 and isinstance(_configured(gateway, "mqtt_port"), int)


def dispatcher_environment(gateway: GatewaySettings, data: Path, port: int | str, metrics: int | str) -> dict[str, str]:
    """What the dispatcher has in its environment in addition to the other parts."""
    settings = {"DISPATCHER__PORT": str(port), "DISPATCHER__METRICS_PORT": str(metrics), "CLUSTER__ENABLED": "true"}
    return {f"{_PREFIX}{key}": value for key, value in settings.items()} | _sockets(gateway.cluster.sockets, data)


def local_gateways(
    first: str, ports: Sequence[PortMap], is_cluster: bool, data: Path | None = None, sockets: str = ""
) -> list[LocalGateway]:
    """One gateway for each of `ports`; `first` is the configured name, and `sockets` the configured directory."""
    shared = {f"{_PREFIX}CLUSTER__ENABLED": "true"} if is_cluster else {}
    count = len(ports)
    if count > 1 and data is not None:
        shared |= _sockets(sockets, data)
    return [
        LocalGateway(part, name, shared | _variables(of_it) | ({} if part == FIRST else _of_another(name)))
        for part, name, of_it in zip(part_names(count), gateway_names(first, count), ports, strict=True)
    ]


def all_of_them(only: Collection[str], gateways: Sequence[LocalGateway]) -> frozenset[str]:
    """The parts of `up --only`, where `gateway` means all gateways, and the dispatcher if there is one."""
    if FIRST not in only:
        return frozenset(only)
    dispatcher = [DISPATCHER for gateway in gateways if gateway.is_behind_dispatcher]
    return frozenset([*only, *(gateway.part for gateway in gateways), *dispatcher])


def announced_listeners(data: Path, gateway: LocalGateway) -> Mapping[str, str] | None:
    """The listeners that a gateway has announced; None if it has announced nothing."""
    content = read_ready(data, gateway.part)
    if content is None:
        return None
    listeners = dict(content.get("listeners", {}))
    found = {listener_name(gateway.part, name): address for name, address in listeners.items()}
    if gateway.is_behind_dispatcher and "mqtt" in found:  # that name is the dispatcher's
        found[f"{FIRST}-mqtt"] = found.pop("mqtt")
    return found


def listener_name(part: str, listener: str) -> str:
    """The name of a gateway's listener within the stack: `mqtt` of the first, `gateway-2-mqtt` of the second."""
    return listener if part == FIRST else f"{part}-{listener}"


def metrics_listeners(state: StackState) -> dict[str, str]:
    """Where each gateway of the stack that is ready, or has been, serves metrics and the admin API: by its name, which
    is "" if an `up` of an earlier version runs."""
    found = {
        name: state.listeners.get(listener_name(part, "metrics"), "")
        for part, name in (state.gateways or {FIRST: ""}).items()
    }
    return {name: listener for name, listener in found.items() if listener}


def listeners_named(state: StackState, listener: str) -> list[str]:
    """The addresses of one kind of listener, such as `mqtt`, of all gateways that are ready, or have been; that of the
    first gateway first."""
    names = [listener_name(part, listener) for part in (state.gateways or (FIRST,))]
    return [state.listeners[name] for name in names if name in state.listeners]


def _configured(gateway: GatewaySettings, setting: str) -> int | str | None:
    """The configured port; None if this version has no such setting."""
    value: Any = gateway
    for name in setting.split("."):
        value = getattr(value, name, None)
    return value if isinstance(value, int | str) else None


def _sockets(configured: str, data: Path) -> dict[str, str]:
    """Where the gateways and the dispatcher meet, unless the configuration says where."""
    return {} if configured else {f"{_PREFIX}CLUSTER__SOCKETS": str(data / "sockets")}


def _free_ports(gateway: GatewaySettings, ports: Ports, part: str) -> PortMap:
    found: dict[str, int | str] = {}
    for name, setting, is_udp in _LISTENERS:
        port = _configured(gateway, setting)
        if isinstance(port, int):
            found[setting] = ports.choose(f"{part}-{name}", gateway.host, 0, f"gateway.{setting}", udp=is_udp)
    return found


def _of_another(name: str) -> dict[str, str]:
    """A gateway that is not the first has another name, and none of the addresses that are advertised for the first."""
    return {f"{_PREFIX}NAME": name, **{f"{_PREFIX}ADVERTISE__{bearer.upper()}": "" for bearer in BEARERS}}


def _variables(ports: PortMap) -> dict[str, str]:
    return {f"{_PREFIX}{setting.upper().replace('.', '__')}": str(port) for setting, port in ports.items()}
