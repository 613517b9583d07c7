"""A mosquitto broker that bridges to the gateway, at its defaults: it comes, stays, and takes messages both ways."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mqtt.packets import Publish
from tests.mosquitto import PROGRAM, free_port
from tests.unit.gateway.host.raw_client import RawClient, subscribe
from tests.unit.gateway.host.socket_gateway import HOST, SocketGateway
from tests.waiting import wait_for

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="the broker mosquitto is not installed")

CONF = """
listener {port} {host}
allow_anonymous true
connection town
address {host}:{gateway}
remote_clientid bridge
restart_timeout 1
topic out/# out 1
topic in/# in 1
"""


@contextmanager
def bridge(directory: Path, gateway: SocketGateway, *options: str) -> Iterator[int]:
    """The broker with a bridge; yields the port of its own clients."""
    port = free_port()
    conf, log = directory / "mosquitto.conf", directory / "mosquitto.log"
    lines = CONF.format(port=port, host=HOST, gateway=gateway.mqtt_port) + "\n".join(options) + "\n"
    conf.write_text(lines)
    with log.open("w") as output:
        broker = subprocess.Popen([str(PROGRAM), "-v", "-c", str(conf)], stdout=output, stderr=output)
        try:
            yield port
        finally:
            broker.terminate()
            broker.wait(10)


def subscriptions_of(gateway: SocketGateway, client: str) -> int:
    session = gateway.call(gateway.harness.home.session, client)
    return len(session.subscriptions) if session is not None and session.link is not None else 0


@pytest.mark.parametrize(
    ("options", "is_private", "tells"),
    [
        ((), True, True),
        (("try_private false",), False, True),
        (("bridge_protocol_version mqttv50",), False, True),
        (("cleansession true", "notifications_local_only true"), True, False),
        (("notifications false",), True, False),
    ],
    ids=["defaults", "not private", "5.0", "notifications stay", "no notifications"],
)
def test_a_bridge_of_mosquitto_stays_and_takes_messages_both_ways(
    tmp_path: Path, options: tuple[str, ...], is_private: bool, tells: bool
) -> None:
    """If it `is_private` it asks with level 0x84 first; if it `tells` its state, it has a will below `$SYS`, and says
    there by PUBLISH that it is connected."""
    with SocketGateway(tmp_path) as gateway, bridge(tmp_path, gateway, *options) as port:
        wait_for(lambda: subscriptions_of(gateway, "bridge") == 1, "the bridge's subscription")
        with RawClient(gateway.mqtt_port) as here, RawClient(port) as there:
            here.connect("here")
            there.connect("there")
            subscribe(here, "out/#")
            subscribe(there, "in/#")
            for number in range(20):
                there.publish(f"out/{number}", b"out")
                here.publish(f"in/{number}", b"in")
            assert [here.take(Publish).topic for _ in range(20)] == [f"out/{number}" for number in range(20)]
            assert [there.take(Publish).topic for _ in range(20)] == [f"in/{number}" for number in range(20)]
        session = gateway.call(gateway.harness.home.session, "bridge")
        assert session is not None
        assert session.events == 1, "it has connected once, and stayed"
        assert gateway.count("published") == 40, "nothing of `$SYS` went on"
        assert (gateway.count("will_left_out"), gateway.count("refused_system_topic")) == (int(tells), int(tells))
        assert gateway.count("closed_unsupported_protocol_version") == int(is_private)
