"""The demo's clients against a gateway in memory: they do what they are told, in order, and keep account of it."""

import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from jobs.demo.errors import DemoError
from jobs.demo.expectations import Account
from jobs.demo.fleet import Fleet
from jobs.demo.plan import Connect, Disconnect, Member, Publish, Subscription
from tests.unit.gateway.host.socket_gateway import HOST, SocketGateway

PATIENCE_S = 30.0
MEMBERS = [
    Member("airport", "airport", True, 1, (Subscription("flights/#", 2),)),
    Member("centre", "centre", False, 1, (Subscription("flights/+", 1), Subscription("weather", 0))),
    Member("aircraft", "aircraft", True, 2, ()),
]


def message(number: int, topic: str = "flights/1", qos: int = 2) -> Publish:
    return Publish(f"m{number}", "aircraft", number, topic, qos, {"id": f"m{number}", "seq": number})


def poll(fleet: Fleet, until: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not until():
        assert time.monotonic() < deadline, "not in time"
        fleet.poll(0.01)
        fleet.muster()


def test_a_day_in_small(tmp_path: Path) -> None:
    """All connect and subscribe; one leaves and finds what it missed; a broken connection comes back by itself."""
    account = Account(MEMBERS)
    with (
        SocketGateway(tmp_path) as gateway,
        closing(Fleet(MEMBERS, (HOST, gateway.mqtt_port), account, time.monotonic)) as fleet,
    ):
        fleet.muster()
        poll(fleet, lambda: fleet.is_idle)
        assert fleet.online == len(MEMBERS)
        fleet.do("aircraft", message(1))
        fleet.do("airport", Disconnect())
        poll(fleet, lambda: fleet.is_idle and fleet.online == 2)
        for number in range(2, 20):
            fleet.do("aircraft", message(number, qos=number % 3))
        fleet.do("aircraft", Disconnect())
        fleet.do("aircraft", Connect())
        fleet.do("aircraft", message(20))
        fleet.do("airport", Connect())
        poll(fleet, lambda: fleet.is_idle and account.is_settled)
        verdict = account.verdict()
        assert verdict.published == 20
        assert verdict.duplicates == verdict.stray == verdict.misordered == 0
        assert fleet.counts == {"connected": 5, "resumed": 2, "connections_lost": 0}
        gateway.call(lambda: [transport.close() for transport in list(gateway.server.transports)])
        poll(fleet, lambda: fleet.counts["connections_lost"] == 3 and fleet.online == 3)
        fleet.everybody(Disconnect())
        poll(fleet, lambda: fleet.online == 0 and fleet.is_idle)


def test_a_refusal_ends_the_demo(tmp_path: Path) -> None:
    with (
        SocketGateway(tmp_path) as gateway,
        closing(Fleet(MEMBERS, (HOST, gateway.mqtt_port), Account(MEMBERS), time.monotonic)) as fleet,
    ):
        fleet.do("aircraft", Connect())
        fleet.do("aircraft", message(1, "$SYS/x"))
        with pytest.raises(DemoError, match="aircraft: the server refused the message"):
            poll(fleet, lambda: False)
