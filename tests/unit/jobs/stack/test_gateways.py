"""Several gateways in one local stack: names, ports, environments, and a directory that stays a cluster (G14)."""

import os
from pathlib import Path

import msgspec
import pytest

from jobs.errors import PortTaken
from jobs.stack import gateways
from jobs.stack.gateways import (
    all_of_them,
    gateway_names,
    has_been_cluster,
    local_gateways,
    metrics_listeners,
    part_names,
    remember_cluster,
)
from jobs.stack.java import Java
from jobs.stack.parts import choose_addresses, dispatcher_part, environment, gateway_part
from jobs.stack.ports import FIRST, LAST
from jobs.stack.state import StackState
from schemas.readiness import announce_ready
from schemas.settings import Settings, process_settings

CONFIGURED = {
    "WAYSTATION_GATEWAY__MQTT_PORT": "0",
    "WAYSTATION_GATEWAY__WEBSOCKET_PORT": "off",
    "WAYSTATION_GATEWAY__HTTP_PORT": "0",
    "WAYSTATION_GATEWAY__METRICS_PORT": "0",
    "WAYSTATION_GATEWAY__ADVERTISE__MQTT": "mqtt.example.org:1883",
    "WAYSTATION_GATEWAY__ADVERTISE__HOST": "gw.example.org",
    "WAYSTATION_ROUTER__METRICS_PORT": "0",
    "WAYSTATION_LEDGER__METRICS_PORT": "0",
}


def settings_of_each(data: Path, count: int, is_cluster: bool = True) -> dict[str, Settings]:
    """What each gateway's process is configured with, by its part."""
    settings = process_settings(CONFIGURED)
    addresses = choose_addresses(settings, data, True, count, is_cluster)
    shared = environment([], data, addresses, Java(data, 21))
    found = {}
    for gateway in local_gateways(settings.gateway.name, addresses.gateways, is_cluster, data):
        env = gateway_part(data, ["python"], CONFIGURED | shared, gateway).env
        found[gateway.part] = process_settings({k: v for k, v in env.items() if k.startswith("WAYSTATION_GATEWAY__")})
    return found


@pytest.mark.parametrize(
    ("first", "names"),
    [
        ("gateway-1", ["gateway-1", "gateway-2", "gateway-3"]),
        ("gw-07", ["gw-07", "gw-8", "gw-9"]),
        ("paris", ["paris", "paris-2", "paris-3"]),
        ("a-b", ["a-b", "a-b-2", "a-b-3"]),
        ("x-²", ["x-²", "x-²-2", "x-²-3"]),
    ],
)
def test_names_are_made_from_the_configured_one_which_stays(first: str, names: list[str]) -> None:
    assert gateway_names(first, 3) == names
    assert gateway_names(first, 1) == [first]
    assert part_names(3) == ["gateway", "gateway-2", "gateway-3"]


def test_each_gateway_has_a_name_and_ports_of_its_own(tmp_path: Path) -> None:
    each = settings_of_each(tmp_path, 3)
    assert [one.gateway.name for one in each.values()] == ["gateway-1", "gateway-2", "gateway-3"]
    assert all(one.gateway.cluster.enabled for one in each.values())
    ports = [port for one in each.values() for port in (one.gateway.mqtt_port, one.gateway.http_port)]
    ports += [one.gateway.metrics_port for one in each.values()]
    assert len(set(ports)) == 9
    assert all(FIRST <= port < LAST for port in ports if isinstance(port, int))
    assert {one.gateway.websocket_port for one in each.values()} == {"off"}


def test_the_ports_of_all_gateways_are_remembered(tmp_path: Path) -> None:
    assert settings_of_each(tmp_path, 3) == settings_of_each(tmp_path, 3)


def test_the_first_has_the_configured_ports_and_the_others_free_ones(tmp_path: Path) -> None:
    free = choose_addresses(process_settings(CONFIGURED), tmp_path, True).http
    settings = process_settings(CONFIGURED | {"WAYSTATION_GATEWAY__HTTP_PORT": str(free)})
    addresses = choose_addresses(settings, tmp_path, False, 2, True)
    assert addresses.http == free
    assert "http_port" not in addresses.gateways[0]
    assert addresses.gateways[1]["http_port"] != free


def test_the_dispatcher_has_the_configured_port_for_mqtt_and_meets_the_gateways(tmp_path: Path) -> None:
    """R1: clients find the port where they found that of a gateway alone."""
    free = choose_addresses(process_settings(CONFIGURED), tmp_path, True).mqtt
    settings = process_settings(CONFIGURED | {"WAYSTATION_GATEWAY__MQTT_PORT": str(free)})
    addresses = choose_addresses(settings, tmp_path, False, 3, True)
    assert addresses.mqtt == free
    assert len({free, *(one["mqtt_port"] for one in addresses.gateways)}) == 4
    part = dispatcher_part(settings.gateway, tmp_path, ["python"], CONFIGURED, addresses)
    dispatcher = process_settings({k: v for k, v in part.env.items() if k.startswith("WAYSTATION_GATEWAY__")}).gateway
    assert dispatcher.dispatcher.port == free
    assert dispatcher.dispatcher.metrics_port not in (0, "off")
    assert dispatcher.cluster.enabled
    met = {one.gateway.cluster.sockets for one in settings_of_each(tmp_path, 3).values()}
    assert met == {dispatcher.cluster.sockets} == {str(tmp_path / "sockets")}


def test_there_is_no_dispatcher_for_one_gateway_or_without_mqtt_over_tcp(tmp_path: Path) -> None:
    settings = process_settings(CONFIGURED)
    alone = local_gateways("gateway-1", choose_addresses(settings, tmp_path, True, 1, True).gateways, True, tmp_path)
    assert not alone[0].is_behind_dispatcher
    assert not any("SOCKETS" in key for key in alone[0].env)
    off = process_settings(CONFIGURED | {"WAYSTATION_GATEWAY__MQTT_PORT": "off"})
    addresses = choose_addresses(off, tmp_path, True, 2, True)
    assert not any(one.is_behind_dispatcher for one in local_gateways("gateway-1", addresses.gateways, True, tmp_path))
    assert addresses.dispatcher_metrics == "off"


def test_a_configured_directory_of_sockets_stays(tmp_path: Path) -> None:
    gateways_of = local_gateways("gateway-1", ({"mqtt_port": 1}, {}), True, tmp_path, "/run/sockets")
    assert not any("SOCKETS" in key for one in gateways_of for key in one.env)


def test_only_the_first_is_advertised_where_the_configuration_says(tmp_path: Path) -> None:
    """A port of another gateway must not lead to the first. The host is the same for all."""
    first, second = settings_of_each(tmp_path, 2).values()
    assert first.gateway.advertise.mqtt == "mqtt.example.org:1883"
    assert (second.gateway.advertise.mqtt, second.gateway.advertise.host) == ("", "gw.example.org")


def test_a_gateway_alone_is_configured_as_ever(tmp_path: Path) -> None:
    """Without a cluster nothing changes."""
    (gateway,) = local_gateways("gateway-1", ({},), is_cluster=False)
    assert gateway == ("gateway", "gateway-1", {})
    assert choose_addresses(process_settings(CONFIGURED), tmp_path, True).gateways == ({},)


def test_the_listener_for_other_gateways_has_a_port_for_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As soon as there is such a setting, configured for the first; a port that is taken is refused by its name."""

    def configured(gateway: object, setting: str) -> int | str | None:
        return 21_000 if setting == "cluster.members_port" else None

    class Ports:
        """Gives what is asked for, and else the next of these."""

        def __init__(self) -> None:
            self.free = iter((22_000, 22_001, 22_002))

        def choose(self, name: str, host: str, configured: int, setting: str, *, udp: bool = False) -> int:
            if configured == 23_000:
                raise PortTaken(setting)
            return configured or next(self.free)

    monkeypatch.setattr(gateways, "_configured", configured)
    gateway = process_settings(CONFIGURED).gateway

    def chosen(free_ports: bool, count: int, is_cluster: bool = True) -> list[dict[str, int | str]]:
        found = gateways.choose_ports(gateway, Ports(), free_ports, count, is_cluster)  # type: ignore[arg-type]
        return [dict(one) for one in found]

    key = "cluster.members_port"
    assert chosen(False, 2) == [{key: 21_000}, {key: 22_000}]
    assert chosen(True, 2) == [{key: 22_000}, {key: 22_001}]
    assert chosen(False, 1) == [{key: 21_000}], "one that is left of a cluster has it too"
    assert chosen(False, 1, is_cluster=False) == [{}]
    monkeypatch.setattr(gateways, "_configured", lambda *_: 23_000)
    with pytest.raises(PortTaken, match=r"gateway\.cluster\.members_port"):
        chosen(False, 2)


def test_a_directory_in_which_several_have_run_stays_a_cluster(tmp_path: Path) -> None:
    """What they wrote has epochs; a gateway that writes none could not be followed by those that do."""
    assert not has_been_cluster(tmp_path)
    remember_cluster(tmp_path)
    assert has_been_cluster(tmp_path)
    (again,) = settings_of_each(tmp_path, 1).values()
    assert (again.gateway.name, again.gateway.cluster.enabled) == ("gateway-1", True)


def test_only_gateway_means_all_gateways() -> None:
    parts = local_gateways("gateway-1", ({}, {}, {}), is_cluster=True)
    assert all_of_them({"gateway"}, parts) == {"gateway", "gateway-2", "gateway-3"}
    assert all_of_them({"gateway-2", "ledger"}, parts) == {"gateway-2", "ledger"}
    assert all_of_them((), parts) == frozenset()
    behind = local_gateways("gateway-1", ({"mqtt_port": 1}, {}), is_cluster=True)
    assert all_of_them({"gateway"}, behind) == {"gateway", "gateway-2", "dispatcher"}
    assert all_of_them({"gateway-2"}, behind) == {"gateway-2"}


def test_the_listeners_of_the_first_keep_their_names(tmp_path: Path) -> None:
    """Everything that looks for `mqtt` or `metrics` finds the first gateway."""
    each = local_gateways("gateway-1", ({}, {}), is_cluster=True)
    first, second = (gateway_part(tmp_path, ["python"], {}, gateway) for gateway in each)
    assert second.ready() is None
    for number, part in enumerate((first, second)):
        announce_ready(tmp_path, part.name, {"listeners": {"mqtt": f"h:{number}", "metrics": f"h:1{number}"}})
    assert first.ready() == {"mqtt": "h:0", "metrics": "h:10"}
    assert second.ready() == {"gateway-2-mqtt": "h:1", "gateway-2-metrics": "h:11"}
    state = stack_state({**(first.ready() or {}), **(second.ready() or {})}, {"gateway": "gw", "gateway-2": "gw-2"})
    assert metrics_listeners(state) == {"gw": "h:10", "gw-2": "h:11"}


def test_mqtt_is_the_dispatchers_if_there_is_one(tmp_path: Path) -> None:
    """Whoever looks for it finds the port that outlives each gateway."""
    first, second = local_gateways("gateway-1", ({"mqtt_port": 1}, {"mqtt_port": 2}), is_cluster=True)
    for number, gateway in enumerate((first, second)):
        announce_ready(tmp_path, gateway.part, {"listeners": {"mqtt": f"h:{number}", "http": f"h:1{number}"}})
    assert gateway_part(tmp_path, ["python"], {}, first).ready() == {"gateway-mqtt": "h:0", "http": "h:10"}
    assert gateway_part(tmp_path, ["python"], {}, second).ready() == {"gateway-2-mqtt": "h:1", "gateway-2-http": "h:11"}


def test_the_record_of_a_stack_of_an_earlier_version_names_no_gateways() -> None:
    """A command may be newer than the `up` that runs."""
    content = msgspec.to_builtins(stack_state({"metrics": "h:1"}, {}))
    del content["gateways"]
    assert metrics_listeners(msgspec.convert(content, StackState)) == {"": "h:1"}


def stack_state(listeners: dict[str, str], names: dict[str, str]) -> StackState:
    return StackState(
        supervisor_pid=os.getpid(),
        supervisor_create_time=0.0,
        ready=True,
        bootstrap="",
        listeners=listeners,
        configuration=[],
        processes=[],
        gateways=names,
    )
