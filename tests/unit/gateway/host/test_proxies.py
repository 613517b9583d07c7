"""Whom a proxy is believed to speak for: X-Forwarded-For, and its forgeries."""

import pytest

from gateway.errors import ProxyHeaderError
from gateway.host.proxies import TrustedProxies

PROXIES = TrustedProxies(["10.0.0.0/8", "192.0.2.7", "fd00::/8"])


@pytest.mark.parametrize(
    ("address", "is_trusted"),
    [
        ("10.1.2.3", True),
        ("192.0.2.7", True),
        ("192.0.2.8", False),
        ("::ffff:10.1.2.3", True),  # IPv4 over an IPv6 socket
        ("fd12::1", True),
        ("fd12::1%eth0", True),
        ("::1", False),
        ("", False),
        ("/run/socket", False),
    ],
)
def test_trusted_networks(address: str, is_trusted: bool) -> None:
    assert PROXIES.trusts(address) is is_trusted


@pytest.mark.parametrize(
    ("address", "headers", "peer"),
    [
        ("203.0.113.5", ["198.51.100.1"], "203.0.113.5:40000"),  # nobody's proxy: its word counts for nothing
        ("10.0.0.1", [], "10.0.0.1:40000"),
        ("10.0.0.1", ["198.51.100.1"], "198.51.100.1:0"),
        ("10.0.0.1", ["6.6.6.6, 198.51.100.1"], "198.51.100.1:0"),  # the client itself sent 6.6.6.6
        ("10.0.0.1", ["6.6.6.6", "198.51.100.1, 10.0.0.2"], "198.51.100.1:0"),  # a chain of proxies
        ("10.0.0.1", ["10.0.0.3, 10.0.0.2"], "10.0.0.3:0"),  # a client in the proxies' network
        ("10.0.0.1", ["198.51.100.1:5555"], "198.51.100.1:5555"),
        ("10.0.0.1", ["2001:db8::1"], "2001:db8::1:0"),
        ("10.0.0.1", ["[2001:db8::1]"], "2001:db8::1:0"),
        ("10.0.0.1", ["[2001:db8::1]:5555"], "2001:db8::1:5555"),
        ("10.0.0.1", ["rubbish, 198.51.100.1"], "198.51.100.1:0"),  # hearsay is not even looked at
    ],
)
def test_the_last_address_that_is_no_proxy_is_the_client(address: str, headers: list[str], peer: str) -> None:
    assert PROXIES.peer(address, 40_000, headers) == peer


@pytest.mark.parametrize("header", ["", "unknown", "198.51.100.1,", "198.51.100.1, _hidden", "[2001:db8::1", "1.2.3"])
def test_an_entry_that_is_no_address_is_an_error(header: str) -> None:
    with pytest.raises(ProxyHeaderError):
        PROXIES.peer("10.0.0.1", 1, [header])
