"""A site of gateways for tests, each of which reaches Kafka by a way of its own that the test cuts, and others by
another one (see harness.gateway_site).

The broker has a listener for each gateway. It tells whoever comes there that it is to be reached by that gateway's
proxy, so all connections of the gateway's Kafka clients go through it.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import Final

import psutil

from harness.gateway_site import NAMES, Site, SiteGateway, advertise_setting
from harness.processes import HOST, STOP_S, Broker, Program
from jobs.stack.broker import BrokerSpec
from jobs.stack.ports import Ports
from jobs.stack.process import wait_until
from tests.cuttable_proxy import ANYBODY, CuttableProxy, Proxies

SPARE: Final = "gateway-d"
"""A gateway that is added to the others while a test runs."""
ALL: Final = (*NAMES, SPARE)
SHIFTED_CLOCK: Final = Path(__file__).parent / "shifted_clock"


class SiteBroker:
    """A broker with a listener for each of `names`, and the proxies before them."""

    def __init__(self, directory: Path, java_home: Path, proxies: Proxies, names: Sequence[str] = ALL) -> None:
        ports = Ports(directory)
        self._listeners = {name: ports.choose(f"listener-{name}", HOST, 0, "") for name in names}
        self._advertised = {name: ports.choose(f"proxy-{name}", HOST, 0, "") for name in names}
        self._broker = Broker(directory, java_home, properties=self._properties)
        self.proxies = proxies
        self.ways = {name: proxies.open(self._advertised[name], port) for name, port in self._listeners.items()}

    def start(self) -> "SiteBroker":
        self._broker.start()
        return self

    def stop(self) -> None:
        self._broker.stop()

    @property
    def bootstrap(self) -> str:
        """For everybody but gateways."""
        return self._broker.bootstrap

    def port_of(self, name: str) -> int:
        """Where a gateway reaches it."""
        return self._advertised[name]

    def bootstrap_of(self, name: str) -> str:
        return f"{HOST}:{self.port_of(name)}"

    def _properties(self, spec: BrokerSpec) -> str:
        """Instead of those of the local stack: the same listeners, and one for each gateway."""
        controller = f"{spec.host}:{spec.controller_port}"
        listeners = {"BROKER": spec.bootstrap} | {
            _listener(name): f"{HOST}:{port}" for name, port in self._listeners.items()
        }
        advertised = {"BROKER": spec.bootstrap} | {
            _listener(name): f"{HOST}:{port}" for name, port in self._advertised.items()
        }
        protocols = ",".join(f"{name}:PLAINTEXT" for name in (*listeners, "CONTROLLER"))
        lines = {
            "listeners": ",".join([*_urls(listeners), f"CONTROLLER://{controller}"]),
            "advertised.listeners": ",".join(_urls(advertised)),
            "listener.security.protocol.map": protocols,
        }
        return "".join(f"{key}={value}\n" for key, value in lines.items())


def _listener(gateway: str) -> str:
    return gateway.upper().replace("-", "_")


def _urls(addresses: Mapping[str, str]) -> list[str]:
    return [f"{name}://{address}" for name, address in addresses.items()]


class SiteDispatcher:
    """Processes that hold one port for the gateways of the site, one after the other. `port` is that of all of them."""

    def __init__(self, site: Site, sockets: Path) -> None:
        self.port = site.ports.choose("dispatcher", HOST, 0, "")
        self._directory, self._lives = site.directory, 0
        self._environ = {
            **os.environ,
            "WAYSTATION_KAFKA__BOOTSTRAP": site.bootstrap,
            "WAYSTATION_KAFKA__PREFIX": site.topics.prefix,
            "WAYSTATION_KAFKA__SHARDS": str(site.shards),
            "WAYSTATION_GATEWAY__CLUSTER__ENABLED": "true",
            "WAYSTATION_GATEWAY__CLUSTER__SOCKETS": str(sockets),
            "WAYSTATION_GATEWAY__DISPATCHER__PORT": str(self.port),
            "WAYSTATION_GATEWAY__DISPATCHER__METRICS_PORT": "0",
        }
        self.running: Program | None = None

    def start(self) -> None:
        """Another process. If one is running, that one ends: returns once it has."""
        self._lives += 1
        name, earlier = f"dispatcher-{self._lives}", self.running
        (self._directory / name).mkdir()
        program = Program(self._directory / name, name, "gateway.dispatch", environ=self._environ)
        program.start()
        self.running = program
        assert earlier is None or wait_until(earlier.ended, STOP_S), "the earlier dispatcher goes on"

    def kill(self) -> None:
        """kill -9, if there is one."""
        if self.running is not None:
            self.running.kill()


class CuttableSite(Site):
    """With `has_dispatcher` clients reach the gateways through a dispatcher too, and shards that move pass sockets.
    `clocks` gives the seconds by which the clocks of gateways are wrong. With `cuttable_links` other gateways reach
    each by the ways in `links`. A gateway that was killed is then not refused at once by its machine: others notice
    later that it is dead, as if its machine were lost."""

    def __init__(
        self,
        directory: Path,
        broker: SiteBroker,
        prefix: str,
        names: Sequence[str] = ALL,
        *,
        shards: int = 6,
        cluster: bool = True,
        clocks: Mapping[str, float] | None = None,
        cuttable_links: bool = False,
        has_dispatcher: bool = False,
    ) -> None:
        self._broker, self._clocks = broker, clocks or {}
        self._sockets = directory / "sockets" if has_dispatcher else None
        super().__init__(
            directory,
            broker.bootstrap,
            prefix,
            names,
            shards=shards,
            cluster=cluster,
            bootstrap_of=broker.bootstrap_of,
            settings=self._settings,
        )
        self.dispatcher = None if self._sockets is None else SiteDispatcher(self, self._sockets)
        self.links: dict[str, list[CuttableProxy]] = {name: [] for name in self.gateways}
        for name, gateway in self.gateways.items() if cuttable_links else ():
            for listener, target in gateway.for_gateways.items():
                port = self.ports.choose(f"{name}-{listener}-way", HOST, 0, "")
                gateway.environ |= advertise_setting(listener, f"{HOST}:{port}")
                self.links[name].append(broker.proxies.open(port, target, self._gateway_at))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.dispatcher is not None:
            self.dispatcher.kill()
        super().__exit__(kind, error, at)

    def way_to_kafka(self, gateway: SiteGateway) -> CuttableProxy:
        return self._broker.ways[gateway.gateway_name]

    @contextmanager
    def kafka_away(self, gateway: SiteGateway) -> Iterator[None]:
        """Meanwhile the gateway does not reach Kafka, and nobody is told."""
        way = self.way_to_kafka(gateway)
        way.freeze()
        try:
            yield
        finally:
            way.heal()

    @contextmanager
    def cut_between(self, one: SiteGateway, other: SiteGateway) -> Iterator[None]:
        """Meanwhile the two do not reach each other, but both reach Kafka, and the third."""
        ways = [(one, way) for way in self.links[other.gateway_name]]
        ways += [(other, way) for way in self.links[one.gateway_name]]
        for source, way in ways:
            way.freeze(source.gateway_name)
        try:
            yield
        finally:
            for _, way in ways:
                way.heal()

    def blip(self) -> None:
        """All connections between gateways end at once, and may be made again."""
        for way in chain.from_iterable(self.links.values()):
            way.blip()

    def _settings(self, name: str) -> Mapping[str, str]:
        sockets = {} if self._sockets is None else {"WAYSTATION_GATEWAY__CLUSTER__SOCKETS": str(self._sockets)}
        offset_s = self._clocks.get(name, 0.0)
        if not offset_s:
            return sockets
        paths = [str(SHIFTED_CLOCK), *filter(None, [os.environ.get("PYTHONPATH")])]
        return sockets | {"PYTHONPATH": os.pathsep.join(paths), "TEST_CLOCK_OFFSET_S": str(offset_s)}

    def _gateway_at(self, port: int) -> str:
        """The gateway whose connection has this local port."""
        for gateway in self.up:
            try:
                found = psutil.Process(gateway.pid).net_connections("tcp")
            except psutil.Error:
                continue
            if any(connection.laddr and connection.laddr.port == port for connection in found):
                return gateway.gateway_name
        return ANYBODY


@contextmanager
def site_broker(directory: Path, java_home: Path) -> Iterator[SiteBroker]:
    with Proxies() as proxies:
        broker = SiteBroker(directory, java_home, proxies).start()
        try:
            yield broker
        finally:
            broker.stop()
