"""Ports are kept, refused or picked once."""

import socket

import pytest

from jobs.errors import PortTaken
from jobs.stack.ports import FIRST, LAST, Ports, is_free

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
    with pytest.raises(PortTaken):
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


def test_is_free(listening):
    assert not is_free(HOST, listening)
