"""A site: several gateways that share its shards, and a router stand-in, as real processes over a real Kafka.

Each gateway has a data directory and ports of its own, which stay the same over its lives, so that clients and other
gateways find it again. It can be killed, made to stand still and woken, ended in order, started again, with its disk or
without.
"""

import json
import os
import shutil
import signal
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from harness.lease_watch import LeaseWatch
from harness.processes import HOST, START_S, STOP_S, Gateway
from jobs.stack.ports import Ports
from jobs.stack.process import ManagedProcess, stop_all, wait_until
from jobs.stack.topics import admin_client, create_topics
from schemas.identity import shard_of
from schemas.member_settings import GatewayClusterSettings
from schemas.topics import DAY_MS, Topics

NAMES: Final = ("gateway-a", "gateway-b", "gateway-c")
PARTITIONS: Final = 2
ROUTES_IN_EFFECT: Final = {
    "WAYSTATION_ROUTER__BATCH_S": "5.0",
    "WAYSTATION_LEDGER__ROUTES_TRIGGER_S": "0.5",
    "WAYSTATION_ROUTER__ROUTE_LEAD_S": "8.0",
}
"""Routes take effect as soon as settings allow, so that messages come both ways: directly, and by instruction."""
OWNED_S: Final = 30.0
FOR_GATEWAYS: Final = {
    "members": ("MEMBERS_PORT", "ADVERTISE_MEMBERS"),
    "links": ("LINKS__PORT", "LINKS__ADVERTISE"),
}
"""The listeners of a gateway for other gateways, for relays and for links: the keys of `[gateway.cluster]` for the port
and for the address that is advertised."""
REQUEST_S: Final = 10.0
AGAIN_S: Final = 0.2


def port_setting(listener: str, port: int) -> dict[str, str]:
    """Where one of FOR_GATEWAYS listens, as an environment variable; none if this version has no such listener."""
    return _cluster_setting(FOR_GATEWAYS[listener][0], str(port))


def advertise_setting(listener: str, address: str) -> dict[str, str]:
    """The address at which other gateways are to reach one of FOR_GATEWAYS, likewise."""
    return _cluster_setting(FOR_GATEWAYS[listener][1], address)


def _cluster_setting(key: str, value: str) -> dict[str, str]:
    is_known = key.partition("__")[0].lower() in GatewayClusterSettings.__struct_fields__
    return {f"WAYSTATION_GATEWAY__CLUSTER__{key}": value} if is_known else {}


def move_path(shard: int, to: str) -> str:
    """The admin request that moves a shard, at the metrics port of its owner."""
    return f"/admin/shards/{shard}/move?to={to}"


class SiteGateway(Gateway):
    """One gateway of the site. `is_up`: its process runs and does not stand still."""

    def __init__(
        self, name: str, directory: Path, ports: Ports, bootstrap: str, prefix: str, settings: Mapping[str, str]
    ) -> None:
        def free(listener: str) -> str:
            return str(ports.choose(f"{name}-{listener}", HOST, 0, ""))

        chosen = {f"WAYSTATION_GATEWAY__{of}_PORT": free(of.lower()) for of in ("MQTT", "WEBSOCKET", "HTTP", "METRICS")}
        self.for_gateways = {listener: int(free(listener)) for listener in FOR_GATEWAYS}
        for listener, port in self.for_gateways.items():
            chosen |= port_setting(listener, port)
        changes = {"WAYSTATION_GATEWAY__NAME": name, **chosen, **settings}
        super().__init__(directory / name, bootstrap, prefix, **changes)
        self.gateway_name = name
        self.mqtt = int(changes["WAYSTATION_GATEWAY__MQTT_PORT"])
        self.http = int(changes["WAYSTATION_GATEWAY__HTTP_PORT"])
        self.metrics = int(changes["WAYSTATION_GATEWAY__METRICS_PORT"])
        self.is_up = False

    def launch(self, ready: str | None = None) -> None:
        super().launch(ready)
        self.is_up = True

    def kill(self) -> None:
        self.is_up = False
        super().kill()

    def strike(self) -> None:
        """kill -9, and waits for nothing: a measurement begins here."""
        self.is_up = False
        self.process.kill()

    def stand_still(self) -> None:
        """SIGSTOP: its sockets stay open, and it answers nothing."""
        self.is_up = False
        os.killpg(self.pid, signal.SIGSTOP)

    def wake(self) -> None:
        """SIGCONT."""
        os.killpg(self.pid, signal.SIGCONT)
        self.is_up = True

    def leave(self) -> int:
        """SIGTERM, and waits for its end; the exit status."""
        self.is_up = False
        return self.stop(STOP_S)

    def lose_disk(self) -> None:
        """What it had written is gone."""
        for part in ("spool", "ready"):
            shutil.rmtree(self.data / part, ignore_errors=True)

    def request(self, path: str, method: str = "GET") -> tuple[int, dict[str, object]]:
        """A request at its metrics port: the status, and the JSON object in the answer. Raises OSError."""
        asked = urllib.request.Request(f"http://{HOST}:{self.metrics}{path}", method=method)
        try:
            with urllib.request.urlopen(asked, timeout=REQUEST_S) as answer:
                return answer.status, json.loads(answer.read() or b"{}")
        except urllib.error.HTTPError as error:
            with error:
                return error.code, {"error": error.read().decode(errors="replace")}


class Site:
    """`with Site(directory, bootstrap, prefix) as site:`; topics and router are there then, and gateways once they are
    started. `bootstrap_of` gives the broker's address for each gateway, if it is not the same for all; `settings` those
    of each gateway; without `cluster` there is one gateway, which has all shards; without `router` nothing writes
    instructions.
    """

    def __init__(
        self,
        directory: Path,
        bootstrap: str,
        prefix: str,
        names: Sequence[str] = NAMES,
        *,
        shards: int = 6,
        cluster: bool = True,
        router: bool = True,
        bootstrap_of: Callable[[str], str] | None = None,
        settings: Callable[[str], Mapping[str, str]] = lambda name: {},
    ) -> None:
        self.directory, self.bootstrap, self.shards, self.is_cluster = directory, bootstrap, shards, cluster
        self.topics = Topics(prefix)
        self.ports = Ports(directory)
        shared = {
            **ROUTES_IN_EFFECT,
            "WAYSTATION_KAFKA__SHARDS": str(shards),
            "WAYSTATION_KAFKA__INGRESS_PARTITIONS": str(PARTITIONS),
            "WAYSTATION_GATEWAY__CLUSTER__ENABLED": str(cluster).lower(),
        }
        self.gateways = {
            name: SiteGateway(
                name,
                directory,
                self.ports,
                bootstrap_of(name) if bootstrap_of is not None else bootstrap,
                prefix,
                {**shared, **settings(name)},
            )
            for name in names
        }
        self.watch = LeaseWatch(bootstrap, self.topics, shards)
        self._has_router = router
        self._running: list[ManagedProcess] = []

    def __enter__(self) -> Self:
        declared = self.topics.declared(PARTITIONS, self.shards, DAY_MS)
        create_topics(admin_client(self.bootstrap, {}), declared)
        if self._has_router:
            arguments = [self.bootstrap, self.topics.prefix, str(self.shards), str(PARTITIONS)]
            argv = [sys.executable, "-m", "harness.everyone_router", *arguments]
            self._running.append(ManagedProcess(argv, os.environ, self.directory / "router.log"))
        self.watch.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        started = [gateway for gateway in self.gateways.values() if hasattr(gateway, "process")]
        for gateway in started:
            if not gateway.ended():
                gateway.kill()
        stop_all(self._running, STOP_S)
        self.watch.__exit__(kind, error, at)

    # -- gateways ------------------------------------------------------------------------------------------------------

    def start(self, *names: str, timeout_s: float = START_S) -> None:
        """Starts these gateways at the same time, by default all; returns once they are ready and every shard has a
        home that serves. Raises NotReadyError."""
        chosen = [self.gateways[name] for name in names or self.gateways]
        with ThreadPoolExecutor(len(chosen)) as starting:
            list(starting.map(lambda gateway: gateway.start(timeout_s), chosen))
        self.all_served(timeout_s)

    @property
    def up(self) -> list[SiteGateway]:
        return [gateway for gateway in self.gateways.values() if gateway.is_up]

    def crashed(self) -> list[str]:
        """The names of those that have ended though nobody has ended them."""
        return [gateway.gateway_name for gateway in self.up if gateway.ended()]

    def log_tails(self, length: int) -> str:
        """The end of what each of them has logged, at most so many characters."""
        files = [(name, gateway.log_file) for name, gateway in self.gateways.items() if gateway.log_file.exists()]
        return "".join(f"--- {name}\n{file.read_text()[-length:]}" for name, file in files)

    # -- shards --------------------------------------------------------------------------------------------------------

    def shard_of(self, client: str) -> int:
        return shard_of(client, self.shards)

    def owner_of(self, client: str) -> SiteGateway:
        """The gateway that has the client's shard, by the log. Raises AssertionError if nobody has it."""
        return self.owner(self.shard_of(client))

    def owner(self, shard: int) -> SiteGateway:
        """Who owns a shard, or claims it next if it is amid a move. Raises AssertionError."""
        if not self.is_cluster:
            return next(iter(self.gateways.values()))
        assert wait_until(lambda: self.watch.owners()[shard] is not None, OWNED_S), f"nobody owns shard {shard}"
        return self.gateways[str(self.watch.owners()[shard])]

    def standby(self, shard: int) -> SiteGateway:
        """The first standby of a shard, by the log. Raises AssertionError if there is none."""
        standbys = self.watch.lease(shard).standbys
        assert standbys, f"shard {shard} has no standby"
        return self.gateways[standbys[0]]

    def are_served(self, names: Iterable[str]) -> bool:
        """Whether each shard has an owner among these gateways whose fences are in force, by the log."""
        known, leases = set(names), self.watch.leases()
        return all(of.is_fenced and of.owner is not None and of.owner.name in known for of in leases)

    def are_balanced(self) -> bool:
        """Whether each gateway that is up has its share of the shards: then none moves. Otherwise they move one after
        the other, with seconds in between."""
        owners = Counter(self.watch.owners())
        shares = [owners[gateway.gateway_name] for gateway in self.up]
        return max(shares) - min(shares) <= 1

    def all_served(self, timeout_s: float = OWNED_S) -> None:
        """Returns once each shard has a home that serves at a gateway that is up. Raises AssertionError."""
        if self.is_cluster:
            up = [gateway.gateway_name for gateway in self.up]
            is_so = wait_until(lambda: self.are_served(up) or bool(self.crashed()), timeout_s)
            assert not self.crashed(), f"ended by themselves: {self.crashed()}"
            assert is_so, f"not all shards are served by {up}: {self.watch.leases()}"

    def all_have_standbys(self, timeout_s: float = OWNED_S) -> None:
        """Returns once each shard has a standby that is up and not its owner. Raises AssertionError."""
        up = {gateway.gateway_name for gateway in self.up}

        def is_so() -> bool:
            return all(
                any(name in up and of.owner is not None and name != of.owner.name for name in of.standbys)
                for of in self.watch.leases()
            )

        assert wait_until(is_so, timeout_s), f"not all shards have a standby: {self.watch.leases()}"

    def move(self, shard: int, to: str) -> tuple[int, dict[str, object]]:
        """Asks the owner to move a shard; its answer. It answers before the shard has moved. Raises OSError."""
        return self.owner(shard).request(move_path(shard, to), "POST")

    def moved(self, shard: int, to: str, timeout_s: float = OWNED_S) -> float:
        """Moves a shard; seconds from when its owner has agreed until its new home serves. A gateway that has just
        started may have to be asked for again, and so has one that was too slow to claim the shard: its owner has taken
        it back. Raises AssertionError."""

        def has_moved() -> bool:
            lease = self.watch.lease(shard)
            return lease.is_fenced and lease.owner is not None and lease.owner.name == to

        ends = time.monotonic() + timeout_s
        while True:
            epoch = self.watch.lease(shard).epoch
            began, (status, answer) = time.monotonic(), self.move(shard, to)
            if status < 300:
                is_settled = partial(self._is_served_after, shard, epoch)
                wait_until(lambda done=is_settled: has_moved() or done(), ends - began)  # type: ignore[misc]
            if has_moved():
                return time.monotonic() - began
            assert time.monotonic() < ends, f"shard {shard} to {to}: {status} {answer}, {self.watch.lease(shard)}"
            time.sleep(AGAIN_S)

    def _is_served_after(self, shard: int, epoch: int) -> bool:
        lease = self.watch.lease(shard)
        return lease.is_fenced and lease.epoch > epoch
