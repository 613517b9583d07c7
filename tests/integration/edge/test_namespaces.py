"""The networks of tests are what they claim to be: links that move and fail, black holes, ways that are slow."""

import time
from asyncio import StreamReader, StreamWriter
from urllib.request import ProxyHandler, build_opener

from tests.listener_in_namespace import PAGE, Listener, Serve, captive_portal, slow_way
from tests.namespaces import Link, Namespace, can_connect, required
from tests.waiting import wait_for

required()

HERE, THERE, DEVICE = "10.9.0.1", "10.9.0.3", "10.9.0.2"
PORT, SLOW_PORT = 7, 8
DELAY_S = 0.1


async def close(reader: StreamReader, writer: StreamWriter) -> None:
    pass


def reaches(device: Namespace, host: str) -> None:
    """It takes a while after a change, because neighbours have to be found (ARP)."""
    wait_for(lambda: device.call(can_connect, host, PORT), f"{host} is reached")


def get(host: str) -> tuple[bytes, float]:
    """What a web server says, and how many seconds that took."""
    began = time.monotonic()
    with build_opener(ProxyHandler({})).open(f"http://{host}:{SLOW_PORT}/", timeout=10) as answer:
        return answer.read(), time.monotonic() - began


def test_a_device_moves_from_one_place_to_another() -> None:
    """It is never in both places at once, and no packet goes from one to the other."""
    with Namespace("a") as a, Namespace("b") as b, Namespace("device") as device:
        link = Link("radio", device, a, DEVICE, HERE)
        with Listener(a, close, PORT), Listener(b, close, PORT):
            reaches(device, HERE)
            link.move(b, THERE)
            reaches(device, THERE)
            assert not device.call(can_connect, HERE, PORT)
            assert not a.call(can_connect, DEVICE, PORT)
            link.move(a, HERE)
            reaches(device, HERE)
            with a.black_hole():
                assert not device.call(can_connect, HERE, PORT)
            link.down()
            assert not device.call(can_connect, HERE, PORT)
            link.up()
            reaches(device, HERE)


def test_every_byte_takes_its_time_on_a_slow_way() -> None:
    portal: Serve = captive_portal(None, [])
    with Namespace("a") as a, Namespace("device") as device:
        Link("radio", device, a, DEVICE, HERE)
        with Listener(a, portal, PORT), Listener(a, slow_way(PORT, DELAY_S), SLOW_PORT):
            page, took_s = device.call(get, HERE)
    assert page == PAGE
    assert took_s >= 2 * DELAY_S
