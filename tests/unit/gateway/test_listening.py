"""A listener whose address cannot be used: the error names its setting, the reason, and what to do."""

import asyncio
import socket
from collections.abc import Iterator
from typing import cast

import msgspec
import pytest

from gateway.host.host_server import HostServer
from gateway.host.listeners import Listeners
from gateway.listening import listening
from schemas.errors import SettingsError
from schemas.settings import process_settings

HOST = "127.0.0.1"


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.create_server((HOST, 0)) as one:
        yield int(one.getsockname()[1])


async def listen(host: str, port: int) -> None:
    with listening("gateway.mqtt_port", host, port):
        (await asyncio.get_running_loop().create_server(asyncio.Protocol, host, port)).close()


def test_a_port_that_another_program_has(taken: int) -> None:
    with pytest.raises(SettingsError) as refused:
        asyncio.run(listen(HOST, taken))
    assert str(refused.value) == (
        f"cannot listen on {HOST}, gateway.mqtt_port = {taken}: Address already in use; "
        "stop the program that uses it, or choose another port"
    )


@pytest.mark.parametrize(
    ("host", "reason"),
    [("192.0.2.1", "Cannot assign requested address"), ("nowhere.invalid", "")],
)
def test_a_host_that_is_not_this_machine(host: str, reason: str) -> None:
    with pytest.raises(SettingsError) as refused:
        asyncio.run(listen(host, 0))
    assert str(refused.value).startswith(f"cannot listen on {host}, gateway.mqtt_port = 0: {reason}")
    assert str(refused.value).endswith(f"; write an address of this machine instead of {host}")


def test_a_listener_names_its_own_setting(taken: int) -> None:
    settings = msgspec.structs.replace(process_settings({}).gateway, host=HOST, mqtt_port=taken)
    with pytest.raises(SettingsError, match=rf"gateway\.mqtt_port = {taken}: Address already in use"):
        asyncio.run(Listeners.open(cast(HostServer, None), settings))
