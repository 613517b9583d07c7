"""Ports are kept, refused or picked once."""

import socket

import pytest

from jobs.errors import PortTaken
from jobs.stack.java import Java
from jobs.stack.parts import choose_addresses, environment
from jobs.stack.ports import FIRST, LAST, Ports, is_free
from schemas.settings import process_settings

HOST = "127.0.0.1"


@pytest.fixture
def listening():
    with socket.socket() as server:
        server.bind((HOST, 0))
        server.listen()
        yield server.getsockname()[1]


def test_a_configured_port_that_is_taken_is_refused_by_name(tmp_path, listening):
    with pytest.raises(PortTaken) as raised:
        Ports(tmp_path).choose("mqtt", HOST, listening, "gateway.mqtt_port")
    for word in (str(listening), "gateway.mqtt_port", "--free-ports"):
        assert word in str(raised.value)


def test_two_listeners_cannot_have_one_port(tmp_path):
    ports = Ports(tmp_path)
    port = ports.choose("mqtt", HOST, 0, "")
    with pytest.raises(PortTaken, match=rf"port {port} \(gateway.websocket_port\) on {HOST} is also set for mqtt"):
        ports.choose("websocket", HOST, port, "gateway.websocket_port")


def test_a_picked_port_stays_the_same_over_restarts(tmp_path):
    first = Ports(tmp_path).choose("broker", HOST, 0, "")
    assert FIRST <= first < LAST
    assert Ports(tmp_path).choose("broker", HOST, 0, "") == first


def test_a_picked_port_that_was_taken_meanwhile_is_picked_anew(tmp_path):
    first = Ports(tmp_path).choose("broker", HOST, 0, "")
    with socket.socket() as server:
        server.bind((HOST, first))
        server.listen()
        second = Ports(tmp_path).choose("broker", HOST, 0, "")
    assert second != first
    assert Ports(tmp_path).choose("broker", HOST, 0, "") == second


def test_an_address_of_another_machine_is_no_taken_port(tmp_path):
    with pytest.raises(PortTaken, match=r"192\.0\.2\.1 is not an address of this machine"):
        Ports(tmp_path).choose("mqtt", "192.0.2.1", 1883, "gateway.mqtt_port")
    with pytest.raises(PortTaken, match=r"192\.0\.2\.1 is not an address of this machine"):
        Ports(tmp_path).choose("mqtt", "192.0.2.1", 0, "gateway.mqtt_port")


def test_tcp_and_udp_have_ports_of_their_own(tmp_path, listening):
    """G11: a listener over QUIC may have the number of one over TCP, and none that is taken over UDP."""
    ports = Ports(tmp_path)
    assert ports.choose("quic", HOST, listening, "gateway.tls.quic_port", udp=True) == listening
    with pytest.raises(PortTaken, match="is also set for"):
        ports.choose("other", HOST, listening, "other", udp=True)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind((HOST, 0))
        with pytest.raises(PortTaken, match="is used by another program"):
            ports.choose("quic", HOST, taken.getsockname()[1], "gateway.tls.quic_port", udp=True)


def test_is_free(listening):
    assert not is_free(HOST, listening)


def test_listeners_that_are_off_stay_off_and_get_no_port(tmp_path):
    """G11: `up --free-ports` picks ports for those that listen."""
    names = {"TLS__MQTTS_PORT": "0", "TLS__CERTIFICATE": "c.pem", "TLS__KEY": "k.pem", "MQTT_PORT": "off"}
    configured = {f"WAYSTATION_GATEWAY__{name}": value for name, value in names.items()}
    settings = process_settings(configured)
    addresses = choose_addresses(settings, tmp_path, free_ports=True)
    assert (addresses.mqtt, addresses.wss) == ("off", "off")
    assert FIRST <= addresses.mqtts < LAST
    told = environment([], tmp_path, addresses, Java(tmp_path, 21))
    again = process_settings(configured | {k: v for k, v in told.items() if k.startswith("WAYSTATION_GATEWAY")})
    assert (again.gateway.mqtt_port, again.gateway.tls.mqtts_port) == ("off", addresses.mqtts)


def test_a_backup_has_a_metrics_port_of_its_own_where_it_has_a_process(tmp_path):
    """All are told to the applications; one that nobody will listen on may be taken."""
    for processes in (1, 2):
        settings = process_settings({"WAYSTATION_STACK__ROUTER_PROCESSES": str(processes)})
        addresses = choose_addresses(settings, tmp_path, free_ports=True)
        told = environment([], tmp_path, addresses, Java(tmp_path, 21))
        names = ("ROUTER__METRICS_PORT", "ROUTER__BACKUP_METRICS_PORT", "LEDGER__METRICS_PORT")
        ports = [int(told[f"WAYSTATION_{name}"]) for name in names]
        picked = [FIRST <= port < LAST for port in ports]
        assert picked == [True, processes == 2, True]
        assert len(set(ports)) == 3


def test_a_metrics_port_that_is_taken_is_refused_by_name(tmp_path, listening):
    ports = dict.fromkeys(("MQTT_PORT", "WEBSOCKET_PORT", "HTTP_PORT", "METRICS_PORT"), "0")
    configured = {f"WAYSTATION_GATEWAY__{name}": port for name, port in ports.items()}
    taken = {"WAYSTATION_ROUTER__METRICS_PORT": "0", "WAYSTATION_LEDGER__METRICS_PORT": str(listening)}
    settings = process_settings(configured | taken)
    with pytest.raises(PortTaken, match=r"ledger\.metrics_port"):
        choose_addresses(settings, tmp_path, free_ports=False)
