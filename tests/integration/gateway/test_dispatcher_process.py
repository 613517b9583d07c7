"""Three gateways of a machine behind one port: each client comes home without a relay, and nothing but its own gateway
can take its connection away (R1, G14)."""

import os
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from itertools import chain, count
from pathlib import Path
from typing import Any, Final

import pytest
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from harness.gateway_site import NAMES, Site
from harness.processes import HOST, Program
from jobs.stack.ports import Ports
from jobs.stack.process import wait_until
from mqtt.decode import Decoder
from mqtt.encode import encode
from mqtt.packets import Connack, Connect, Packet
from tests.conftest import LocalBroker
from tests.draw import site_of_gateways
from tests.paho_client import Paho

LOOK_S: Final = 10.0
CLIENTS: Final = 12
SPREAD_S: Final = 30.0
"""Until each gateway has its shards: they move one by one."""

pytestmark = [site_of_gateways, pytest.mark.timeout(180)]


class Raw:
    """A client that says no more than it must."""

    def __init__(self, port: int, client: str, version: int = 4, pieces: int = 1) -> None:
        self.client, self._decoder = client, Decoder(1 << 20, version)
        self.socket = socket.create_connection((HOST, port), timeout=LOOK_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        data = encode(Connect(client_id=client, version=version, clean_start=True), version)
        size = -(-len(data) // pieces)
        for start in range(0, len(data), size):
            self.socket.sendall(data[start : start + size])
        connack = self.receive()
        if not isinstance(connack, Connack) or connack.reason_code:
            self.close()
            raise AssertionError(connack)

    def receive(self) -> Packet:
        while True:
            data = self.socket.recv(1000)
            if not data:
                raise EOFError
            packets = self._decoder.feed(data)
            if packets:
                return packets[0]

    def is_alive(self) -> bool:
        self.socket.sendall(b"\xc0\0")
        try:
            self.receive()
        except (OSError, EOFError):
            return False
        return True

    def close(self) -> None:
        self.socket.close()


class Dispatched:
    """A site, and the dispatcher of its machine."""

    def __init__(self, directory: Path, site: Site, sockets: Path, prefix: str) -> None:
        self.site = site
        self.port = Ports(directory).choose("dispatcher", HOST, 0, "")
        self._directory, self._lives = directory, 0
        self._epochs: dict[str, int] = {}
        self._environ = {
            **os.environ,
            "WAYSTATION_KAFKA__BOOTSTRAP": site.bootstrap,
            "WAYSTATION_KAFKA__PREFIX": prefix,
            "WAYSTATION_KAFKA__SHARDS": str(site.shards),
            "WAYSTATION_GATEWAY__CLUSTER__ENABLED": "true",
            "WAYSTATION_GATEWAY__CLUSTER__SOCKETS": str(sockets),
            "WAYSTATION_GATEWAY__DISPATCHER__PORT": str(self.port),
            "WAYSTATION_GATEWAY__DISPATCHER__METRICS_PORT": "0",
        }

    def program(self) -> Program:
        self._lives += 1
        name = f"dispatcher-{self._lives}"
        (self._directory / name).mkdir()
        return Program(self._directory / name, name, "gateway.dispatch", environ=self._environ)

    def clients_of(self, gateway: str) -> Iterator[str]:
        """Identifiers of clients that this gateway serves."""
        owners = self.site.watch.owners()
        return (name for n in count() if owners[self.site.shard_of(name := f"{gateway}-{n}")] == gateway)

    def all_live(self, clients: Iterable[Raw]) -> bool:
        """Whether those live whose shard has had the same owner all the time; there are some. A shard that moves takes
        leave of its clients."""
        steady = [raw for raw in clients if self.epoch_of(raw.client) == self._epochs.get(raw.client)]
        return bool(steady) and all(raw.is_alive() for raw in steady)

    def epoch_of(self, client: str) -> int:
        return self.site.watch.lease(self.site.shard_of(client)).epoch

    def come(self, client: str, version: int, pieces: int) -> Raw:
        self._epochs[client] = self.epoch_of(client)
        return Raw(self.port, client, version, pieces)

    def metric(self, name: str) -> dict[str, float]:
        """By gateway."""
        found = {}
        for gateway in self.site.up:
            lines = _text(gateway.metrics).splitlines()
            found[gateway.gateway_name] = sum(float(line.split()[-1]) for line in lines if line.startswith(f"{name} "))
        return found


def _text(port: int) -> str:
    with socket.create_connection((HOST, port), timeout=LOOK_S) as one:
        one.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        return b"".join(iter(lambda: one.recv(65536), b"")).decode()


@pytest.fixture
def machine(tmp_path: Path, broker: LocalBroker, unique_prefix: str) -> Iterator[Dispatched]:
    sockets = tmp_path / "sockets"
    settings = {"WAYSTATION_GATEWAY__CLUSTER__SOCKETS": str(sockets)}
    with Site(tmp_path, broker.bootstrap, unique_prefix, NAMES, router=False, settings=lambda name: settings) as site:
        site.start()
        site.all_have_standbys()
        assert wait_until(lambda: site.are_balanced() and site.are_served(NAMES), SPREAD_S)
        yield Dispatched(tmp_path, site, sockets, unique_prefix)


def test_clients_of_one_port_come_home_whichever_process_ends(machine: Dispatched) -> None:
    first = machine.program()
    with first.running():
        clients = _come_home(machine)
        _killed_dispatcher(machine, first, clients)
    second = machine.program()
    with second.running():
        _replaced_dispatcher(machine, second, clients)
    assert second.process.exit_code == 0
    for raw in chain.from_iterable(clients.values()):
        raw.close()


def _come_home(machine: Dispatched) -> dict[str, list[Raw]]:
    """R1: without a relay, in whatever pieces CONNECT comes, and whoever the client's library is by."""
    homes = {name: machine.clients_of(name) for name in NAMES}
    clients: dict[str, list[Raw]] = {
        name: [machine.come(next(ids), version, pieces) for version, pieces in ((4, 1), (5, 3), (4, 100))]
        for name, ids in homes.items()
    }
    for name, ids in homes.items():
        _paho(machine.port, next(ids), MQTTProtocolVersion.MQTTv5 if name == NAMES[0] else MQTTProtocolVersion.MQTTv311)
    assert not any(machine.metric("waystation_relays_opened_total").values())
    given = machine.metric("waystation_clients_dispatched_total")
    assert all(given[name] == 4 for name in homes), given
    return clients


def _paho(port: int, client: str, version: MQTTProtocolVersion) -> None:
    connected = threading.Event()
    one = Paho(CallbackAPIVersion.VERSION2, client, protocol=version)
    one.on_connect = lambda *_: connected.set()
    one.connect(HOST, port)
    one.loop_start()
    assert connected.wait(LOOK_S)
    one.disconnect()
    one.loop_stop()


def _killed_dispatcher(machine: Dispatched, dispatcher: Program, clients: dict[str, list[Raw]]) -> None:
    """R1: the gateways have the connections. Another one listens again."""
    dispatcher.kill()
    assert machine.all_live(chain.from_iterable(clients.values()))
    with pytest.raises(ConnectionError):
        socket.create_connection((HOST, machine.port), timeout=LOOK_S)


def _replaced_dispatcher(machine: Dispatched, second: Program, clients: dict[str, list[Raw]]) -> None:
    """R1, R5: while clients come all the time, each is accepted, and served."""
    faults: list[Any] = []
    over = threading.Event()
    served = 0

    def come() -> None:
        nonlocal served
        while not over.is_set():
            try:
                raw = Raw(machine.port, f"new-{served}", pieces=2)
            except (OSError, EOFError, AssertionError) as error:
                faults.append(error)
                return
            raw.close()
            served += 1

    coming = threading.Thread(target=come)
    coming.start()
    third = machine.program()
    with third.running():
        assert wait_until(second.ended, LOOK_S)
        before = served
        assert wait_until(lambda: served > before + CLIENTS, LOOK_S)
        over.set()
        coming.join(LOOK_S)
        assert not faults
        assert machine.all_live(chain.from_iterable(clients.values()))
        _killed_gateway(machine, clients)


def _killed_gateway(machine: Dispatched, clients: dict[str, list[Raw]]) -> None:
    """R1, G14: its clients come to the same port again, and are served; others notice nothing."""
    lost = next(iter(clients))
    client = clients[lost][0].client
    machine.site.gateways[lost].kill()
    deadline = time.monotonic() + LOOK_S
    while True:
        try:
            again = Raw(machine.port, client)
            break
        except (OSError, EOFError, AssertionError):
            assert time.monotonic() < deadline
    assert again.is_alive()
    again.close()
    assert machine.all_live(raw for name, raws in clients.items() if name != lost for raw in raws)
