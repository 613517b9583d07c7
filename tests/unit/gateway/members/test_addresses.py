"""The addresses that a gateway advertises (G1)."""

from pathlib import Path

import pytest

from gateway.members.addresses import advertised, advertised_to_members
from schemas.errors import SettingsError
from schemas.members import GatewayAddress
from schemas.settings import GatewaySettings, load_settings
from tests.unit.schemas.test_settings_errors import overlay

OPEN = {"mqtt": 1883, "websocket": 8083, "http": 8080}


def gateway(directory: Path, text: str) -> GatewaySettings:
    """`text` are keys of `[gateway]`."""
    return load_settings(overlay(directory, f"[gateway]\n{text}\n"), {}).gateway


def test_they_are_those_of_the_open_listeners(tmp_path: Path) -> None:
    here = gateway(tmp_path, "")
    assert advertised(here, OPEN, "machine") == {
        "mqtt": GatewayAddress("127.0.0.1", 1883),
        "ws": GatewayAddress("127.0.0.1", 8083),
        "http": GatewayAddress("127.0.0.1", 8080),
    }
    assert advertised(here, {"mqtts": 1, "wss": 2, "https": 3}, "machine") == {
        "mqtts": GatewayAddress("127.0.0.1", 1),
        "wss": GatewayAddress("127.0.0.1", 2),
        "https": GatewayAddress("127.0.0.1", 3),
    }
    assert advertised(here, {}, "machine") == {}


@pytest.mark.parametrize("host", ["0.0.0.0", "::", ""])
def test_on_a_wildcard_they_have_the_name_of_the_machine(tmp_path: Path, host: str) -> None:
    everywhere = f'host = "{host}"\nauthentication.methods = ["anonymous"]'
    assert advertised(gateway(tmp_path, everywhere), {"mqtt": 1}, "machine") == {"mqtt": GatewayAddress("machine", 1)}
    named = f'{everywhere}\nadvertise.host = "gw.example.org"'
    assert advertised(gateway(tmp_path, named), {"mqtt": 1}, "machine") == {"mqtt": GatewayAddress("gw.example.org", 1)}


def test_what_is_configured_counts_even_without_a_listener(tmp_path: Path) -> None:
    """A proxy ends TLS."""
    here = gateway(tmp_path, 'advertise.mqtts = "mqtt.example.org:8883"\nadvertise.ws = "[2001:db8::1]:80"')
    assert advertised(here, OPEN, "machine") == {
        "mqtt": GatewayAddress("127.0.0.1", 1883),
        "mqtts": GatewayAddress("mqtt.example.org", 8883),
        "ws": GatewayAddress("2001:db8::1", 80),
        "http": GatewayAddress("127.0.0.1", 8080),
    }


def test_a_listener_behind_a_proxy_is_advertised_only_as_configured(tmp_path: Path) -> None:
    """Clients send no PROXY header."""
    proxied = 'proxy_protocol = true\ntrusted_proxies = ["10.0.0.0/8"]'
    assert advertised(gateway(tmp_path, proxied), {"mqtt": 1}, "machine") == {}
    named = f'{proxied}\nadvertise.mqtt = "lb.example.org:1883"'
    assert advertised(gateway(tmp_path, named), {"mqtt": 1}, "m") == {"mqtt": GatewayAddress("lb.example.org", 1883)}


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("", ("127.0.0.1", 7000)),
        ('advertise.host = "gw1.test"', ("gw1.test", 7000)),
        ('cluster.members_host = "10.0.0.7"', ("10.0.0.7", 7000)),
        ('cluster.members_host = "0.0.0.0"', ("machine", 7000)),
        ('advertise.host = "gw1.test"\ncluster.advertise_members = "inner.test:7443"', ("inner.test", 7443)),
    ],
)
def test_other_gateways_may_have_an_address_of_their_own(tmp_path: Path, text: str, address: tuple[str, int]) -> None:
    """G14: networks of clients and of gateways may differ."""
    assert advertised_to_members(gateway(tmp_path, text), 7000, "machine") == GatewayAddress(*address)


_OPEN_HOST = 'host = "0.0.0.0"\nauthentication.methods = ["anonymous"]\ncluster.enabled = true\n'
_FILES = 'cluster.members_certificate = "a"\ncluster.members_key = "b"\ncluster.members_ca = "c"\n'


@pytest.mark.parametrize(
    "text",
    [
        _OPEN_HOST.replace("true", "false"),
        _OPEN_HOST + _FILES,
        _OPEN_HOST + 'cluster.members_port = "off"',
        _OPEN_HOST + 'cluster.members_host = "127.0.0.1"',
        "cluster.enabled = true",
    ],
)
def test_members_need_tls_only_where_other_machines_reach_them(tmp_path: Path, text: str) -> None:
    assert gateway(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (_OPEN_HOST, "other machines can reach the listener for gateways at '0.0.0.0'"),
        ('cluster.enabled = true\ncluster.members_host = "10.0.0.7"', "whoever connects there is taken for a gateway"),
        ('cluster.members_key = "b"', "members_certificate, members_key and members_ca belong together"),
        ('cluster.advertise_members = "host:0"', "gateway.cluster.advertise_members = 'host:0': 0 is not a port"),
        ('advertise.mqtt = "host"', 'gateway.advertise.mqtt = "host" is not allowed: expected "host:port", such as'),
        ('advertise.mqtt = "::1:1883"', "gateway.advertise.mqtt"),
        ('advertise.mqtt = "host:70000"', "gateway.advertise.mqtt = 'host:70000': 70000 is not a port"),
        ('advertise.https = "[::1]:0"', "gateway.advertise.https = '[::1]:0': 0 is not a port"),
        ('advertise.host = "host:1883/"', "expected a host name or an IP address, without a port"),
        ("cluster.timeout_s = 0.5", "gateway.cluster.timeout_s = 0.5 is too short"),
        ("access_point.strategy = 'memroy'", 'Did you mean "memory"?'),
        ("cluster.members = 0", "gateway.cluster.members = 0 is not allowed: expected a whole number from 1 to 1000"),
    ],
)
def test_a_wrong_setting_is_refused(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(SettingsError) as refused:
        gateway(tmp_path, text)
    assert sentence in str(refused.value)


def test_the_console_is_advertised_in_a_cluster_only(tmp_path: Path) -> None:
    """For the consoles of the other gateways (G14)."""
    ports = {"metrics": 9464}
    assert advertised(gateway(tmp_path, ""), ports, "m") == {}
    shared = "cluster.enabled = true"
    assert advertised(gateway(tmp_path, shared), ports, "m") == {"console": GatewayAddress("127.0.0.1", 9464)}
    named = f'{shared}\nadvertise.console = "ops.example.org:8443"'
    assert advertised(gateway(tmp_path, named), ports, "m") == {"console": GatewayAddress("ops.example.org", 8443)}
    assert advertised(gateway(tmp_path, f"{shared}\nconsole.enabled = false"), ports, "m") == {}
    with pytest.raises(SettingsError, match="console"):
        gateway(tmp_path, 'advertise.console = "ops.example.org:0"')
