"""The parts of the local stack: broker, topics, router, ledger, gateways, dispatcher; and their environment.

A child is configured by its environment alone: `WAYSTATION_CONF`, `WAYSTATION_DATA`, `WAYSTATION_PART`, and overrides
of single keys that the stack decides (addresses). See :func:`schemas.settings.process_settings`.
"""

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from jobs.stack import broker
from jobs.stack.broker import BrokerSpec
from jobs.stack.gateways import (
    DISPATCHER,
    LocalGateway,
    PortMap,
    announced_listeners,
    choose_ports,
    dispatcher_environment,
    has_dispatcher,
)
from jobs.stack.generations import generation_of
from jobs.stack.java import Java
from jobs.stack.part import Part
from jobs.stack.ports import Ports
from jobs.stack.process import can_take_priority_back
from jobs.stack.state import DATA_VARIABLE
from jobs.stack.topics import admin_client, create_topics, declared_topics
from schemas.readiness import PART_VARIABLE, read_json, read_ready
from schemas.sections import OFF
from schemas.settings import GatewaySettings, Settings

BROKER_HOST = "127.0.0.1"


class Addresses(NamedTuple):
    """Every port of a stack, already chosen and free; listeners of the gateway may be "off". `gateways` has for each
    gateway what differs (:func:`jobs.stack.gateways.choose_ports`)."""

    broker: int
    controller: int
    mqtt: int | str
    websocket: int | str
    mqtts: int | str
    wss: int | str
    https: int | str
    quic: int | str
    http: int | str
    metrics: int
    router_metrics: int
    backup_metrics: int
    ledger_metrics: int
    gateways: tuple[PortMap, ...] = ({},)
    dispatcher_metrics: int | str = OFF

    @property
    def bootstrap(self) -> str:
        return f"{BROKER_HOST}:{self.broker}"


def choose_addresses(
    settings: Settings, data: Path, free_ports: bool, gateways: int = 1, is_cluster: bool = False
) -> Addresses:
    """The configured ports, or free ones if the configuration says 0 or `free_ports` is set; for all `gateways` but the
    first always free ones.

    Raises PortTaken if a configured port is in use.
    """
    ports = Ports(data)
    gateway, router, ledger = settings.gateway, settings.router, settings.ledger

    def metrics(part: str, host: str, configured: int, key: str) -> int:
        return ports.choose(f"{part}-metrics", host, 0 if free_ports else configured, key)

    def of_gateway(name: str, configured: int, table: str = "gateway", udp: bool = False) -> int:
        return ports.choose(name, gateway.host, 0 if free_ports else configured, f"{table}.{name}_port", udp=udp)

    def listener(name: str, configured: int | str, table: str = "gateway", udp: bool = False) -> int | str:
        return configured if isinstance(configured, str) else of_gateway(name, configured, table, udp)

    return Addresses(
        broker=ports.choose(
            "broker", BROKER_HOST, 0 if free_ports else settings.stack.broker_port, "stack.broker_port"
        ),
        controller=ports.choose("controller", BROKER_HOST, 0, "controller"),
        mqtt=listener("mqtt", gateway.mqtt_port),
        websocket=listener("websocket", gateway.websocket_port),
        mqtts=listener("mqtts", gateway.tls.mqtts_port, "gateway.tls"),
        wss=listener("wss", gateway.tls.wss_port, "gateway.tls"),
        https=listener("https", gateway.tls.https_port, "gateway.tls"),
        quic=listener("quic", gateway.tls.quic_port, "gateway.tls", udp=True),
        http=listener("http", gateway.http_port),
        metrics=of_gateway("metrics", gateway.metrics_port),
        router_metrics=metrics("router", router.metrics_host, router.metrics_port, "router.metrics_port"),
        # A backup in the active's process has no port of its own.
        backup_metrics=router.backup_metrics_port
        if settings.stack.router_processes == 1
        else metrics("backup", router.metrics_host, router.backup_metrics_port, "router.backup_metrics_port"),
        ledger_metrics=metrics("ledger", ledger.metrics_host, ledger.metrics_port, "ledger.metrics_port"),
        gateways=choose_ports(gateway, ports, free_ports, gateways, is_cluster),
        dispatcher_metrics=_dispatcher_metrics(gateway, ports, free_ports, gateways),
    )


def _dispatcher_metrics(gateway: GatewaySettings, ports: Ports, free_ports: bool, gateways: int) -> int | str:
    configured = gateway.dispatcher.metrics_port
    if isinstance(configured, str) or not has_dispatcher(gateway, gateways):
        return OFF
    name, key = f"{DISPATCHER}-metrics", "gateway.dispatcher.metrics_port"
    return ports.choose(name, gateway.host, 0 if free_ports else configured, key)


def broker_spec(settings: Settings, data: Path, addresses: Addresses) -> BrokerSpec:
    return BrokerSpec(
        directory=data / "broker",
        host=BROKER_HOST,
        port=addresses.broker,
        controller_port=addresses.controller,
        heap=settings.stack.broker_heap,
        payload_bytes=settings.gateway.limits.packet_bytes,
        java_options=settings.stack.broker_java_options,
    )


def environment(configuration: list[Path], data: Path, addresses: Addresses, java: Java) -> dict[str, str]:
    """What all parts have in their environment in addition to the supervisor's."""
    return {
        **configured(configuration),
        DATA_VARIABLE: str(data),
        "WAYSTATION_KAFKA__BOOTSTRAP": addresses.bootstrap,
        "WAYSTATION_STACK__BROKER_PORT": str(addresses.broker),
        "WAYSTATION_GATEWAY__MQTT_PORT": str(addresses.mqtt),
        "WAYSTATION_GATEWAY__WEBSOCKET_PORT": str(addresses.websocket),
        "WAYSTATION_GATEWAY__HTTP_PORT": str(addresses.http),
        "WAYSTATION_GATEWAY__TLS__MQTTS_PORT": str(addresses.mqtts),
        "WAYSTATION_GATEWAY__TLS__WSS_PORT": str(addresses.wss),
        "WAYSTATION_GATEWAY__TLS__HTTPS_PORT": str(addresses.https),
        "WAYSTATION_GATEWAY__TLS__QUIC_PORT": str(addresses.quic),
        "WAYSTATION_GATEWAY__METRICS_PORT": str(addresses.metrics),
        "WAYSTATION_ROUTER__METRICS_PORT": str(addresses.router_metrics),
        "WAYSTATION_ROUTER__BACKUP_METRICS_PORT": str(addresses.backup_metrics),
        "WAYSTATION_LEDGER__METRICS_PORT": str(addresses.ledger_metrics),
        "JAVA_HOME": str(java.home),
        "PYTHONUNBUFFERED": "1",
    }


def configured(files: Sequence[Path]) -> dict[str, str]:
    """The variable that names a part's configuration files."""
    return {"WAYSTATION_CONF": os.pathsep.join(str(path) for path in files)}


def local_parts(
    settings: Settings,
    data: Path,
    spec: BrokerSpec,
    broker_argv: list[str],
    interpreter: Sequence[str],
    env: Mapping[str, str],
    gateways: Sequence[LocalGateway],
    addresses: Addresses,
) -> list[Part]:
    """The local stack. `interpreter` runs the modules of the platform's own parts."""
    router_parts = (
        router_part(settings, data, interpreter, env, name, roles, generation_of(data, roles))
        for name, roles in routers(settings).items()
    )
    ledger = platform_part(data, interpreter, env, "ledger", "jobs.ledger")
    return [
        Part("broker", tuple(broker_argv), {**env, PART_VARIABLE: "broker"}, broker_ready(spec)),
        Part("topics", (), {}, topics_ready(settings, spec), after=("broker",)),
        *router_parts,
        ledger._replace(
            niceness=settings.stack.ledger_niceness,
            may_lower_priority=lambda: ledger_may_lower_priority(data, ledger.name, settings.router.route_lead_s),
        ),
        *(gateway_part(data, interpreter, env, gateway) for gateway in gateways),
        *(
            dispatcher_part(settings.gateway, data, interpreter, env, addresses)
            for gateway in gateways
            if gateway.is_behind_dispatcher
        ),
    ]


def gateway_part(data: Path, interpreter: Sequence[str], env: Mapping[str, str], gateway: LocalGateway) -> Part:
    part = platform_part(data, interpreter, {**env, **gateway.env}, gateway.part, "gateway")
    return part._replace(ready=partial(announced_listeners, data, gateway))


def dispatcher_part(
    gateway: GatewaySettings, data: Path, interpreter: Sequence[str], env: Mapping[str, str], addresses: Addresses
) -> Part:
    """It has the configured port for MQTT."""
    own = dispatcher_environment(gateway, data, addresses.mqtt, addresses.dispatcher_metrics)
    return platform_part(data, interpreter, {**env, **own}, DISPATCHER, "gateway.dispatch")._replace(takes_over=True)


def routers(settings: Settings) -> dict[str, list[str]]:
    """The parts that route, with the roles of each."""
    if settings.stack.router_processes == 1:
        return {"router": ["active", "backup"]}
    return {f"router-{role}": [role] for role in ("active", "backup")}


def router_part(
    settings: Settings,
    data: Path,
    interpreter: Sequence[str],
    env: Mapping[str, str],
    name: str,
    roles: Sequence[str],
    generation: int,
) -> Part:
    """A process that routes as `roles`, with the checkpoints of this generation."""
    role = roles[0] if len(roles) == 1 else "both"
    arguments = ("--role", role, "--generation", str(generation))
    return lowering_priority_at_start(
        platform_part(data, interpreter, env, name, "jobs.router", *arguments), settings, data
    )


def lowering_priority_at_start(router: Part, settings: Settings, data: Path) -> Part:
    """A router's process that lowers its priority while it starts alongside another, if that can be undone: a little
    alongside its peer, which needs it soon, and to the lowest alongside one that it is to replace, which can wait."""
    others = [name for name in routers(settings) if name != router.name]
    router = router._replace(may_lower_priority=partial(starts_alongside, data, router.name, others))
    if not can_take_priority_back():
        return router
    stack = settings.stack
    return router._replace(niceness=stack.router_start_niceness, niceness_alongside=stack.router_replace_niceness)


def platform_part(
    data: Path, interpreter: Sequence[str], env: Mapping[str, str], name: str, *module_and_arguments: str
) -> Part:
    return Part(
        name=name,
        argv=(*interpreter, "-m", *module_and_arguments),
        env={**env, PART_VARIABLE: name},
        ready=partial(announced, data, name),
        after=("topics",),
    )


def announced(data: Path, part: str) -> Mapping[str, str] | None:
    """The listeners a part has announced; None if it has announced nothing."""
    content = read_ready(data, part)
    return None if content is None else dict(content.get("listeners", {}))


def starts_alongside(data: Path, part: str, others: Iterable[str]) -> bool:
    """Whether the part is not ready while one of the others is."""
    return announced(data, part) is None and any(announced(data, other) is not None for other in others)


def ledger_may_lower_priority(
    data: Path, part: str, lead_s: float, can_take_back: Callable[[], bool] = can_take_priority_back
) -> bool:
    """Whether the ledger may lower its priority now: while it folds routes in time. If the priority cannot be raised
    again, only after the ledger's start, which would otherwise take minutes."""
    return (can_take_back() or has_settled(data, part)) and folds_in_time(data, lead_s)


def has_settled(data: Path, part: str) -> bool:
    """Whether the part has announced that its start is complete."""
    return bool((read_ready(data, part) or {}).get("settled"))


def folds_in_time(data: Path, lead_s: float, clock: Callable[[], float] = time.time) -> bool:
    """Whether routes were last folded less than half of `lead_s` ago, the time for which routers go on without a fold.
    If not, messages will soon be sent to every shard, which leaves the ledger even less time to fold."""
    status = read_json(data / "status" / "routes.json") or {}
    if "batch_ms" not in status:
        return False
    return bool(clock() - (status["at_ms"] - status["batch_ms"]) / 1000 < lead_s / 2)


def broker_ready(spec: BrokerSpec) -> Callable[[], Mapping[str, str] | None]:
    return lambda: {"kafka": spec.bootstrap} if broker.answers(spec) else None


def topics_ready(settings: Settings, spec: BrokerSpec) -> Callable[[], Mapping[str, str] | None]:
    """A step: create the declared topics. Raises TopicsError if an existing one differs."""

    def ready() -> Mapping[str, str]:
        create_topics(admin_client(spec.bootstrap, {}), declared_topics(settings))
        return {}

    return ready
