"""`publish` and `subscribe` in a stack of several gateways: any of them may be away (G14)."""

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from edge.link import Address
from jobs.cli.connecting import InTurn
from jobs.stack.state import StackState, write_state
from mqtt.codes import ReasonCode
from mqtt.packets import Connect, Packet, Publish, Suback, Subscribe
from tests.unit.jobs.cli.scripted_server import Peer, ScriptedServer

Run = Callable[..., int]


@pytest.fixture
def nobody() -> Iterator[str]:
    """An address at which nobody listens."""
    with closing(socket.socket()) as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{bound.getsockname()[1]}"


def stack(data: Path, *addresses: str) -> None:
    """A stack runs whose gateways have these addresses."""
    parts = ["gateway", *(f"gateway-{number}" for number in range(2, len(addresses) + 1))]
    names = ["mqtt", *(f"{part}-mqtt" for part in parts[1:])]
    state = StackState(
        supervisor_pid=os.getpid(),
        supervisor_create_time=psutil.Process().create_time(),
        ready=True,
        bootstrap="",
        listeners=dict(zip(names, addresses, strict=True)),
        configuration=[],
        processes=[],
        gateways={part: part for part in parts},
    )
    write_state(data, state)


def greets(peer: Peer, packet: Packet) -> bool:
    if not isinstance(packet, Subscribe):
        return False
    peer.send(Suback(packet.packet_id, [ReasonCode.GRANTED_QOS_1]), Publish("a", b"hello", 0))
    return True


def test_they_reach_another_gateway_if_the_first_is_down(run: Run, capfd, tmp_path: Path, nobody: str) -> None:
    with ScriptedServer(greets) as server:
        stack(tmp_path, nobody, server.address)
        assert run("publish", "a", "x") == 0
        assert run("subscribe", "a", "--count", "1") == 0
        assert [packet.payload for packet in server.of(Publish) if isinstance(packet, Publish)] == [b"x"]
    assert capfd.readouterr().out == "a hello\n"


@pytest.mark.parametrize("reason", [ReasonCode.SERVER_BUSY, ReasonCode.SERVER_UNAVAILABLE])
def test_they_go_on_if_a_gateway_does_not_take_clients_now(run: Run, tmp_path: Path, reason: ReasonCode) -> None:
    def refuse(peer: Peer, packet: Packet) -> bool:
        peer.refuse(reason)
        return True

    with ScriptedServer(refuse) as busy, ScriptedServer(greets) as server:
        stack(tmp_path, busy.address, server.address)
        assert run("publish", "a", "x") == 0
        assert run("subscribe", "a", "--count", "1") == 0


@pytest.mark.parametrize("command", [("publish", "a", "x"), ("subscribe", "a")])
def test_a_refusal_for_good_is_not_tried_elsewhere(run: Run, capfd, tmp_path: Path, command: tuple[str, ...]) -> None:
    def refuse(peer: Peer, packet: Packet) -> bool:
        peer.refuse(ReasonCode.NOT_AUTHORIZED)
        return True

    with ScriptedServer(refuse) as first, ScriptedServer() as second:
        stack(tmp_path, first.address, second.address)
        assert run(*command) == 1
        assert not second.of(Connect)
    assert "NOT_AUTHORIZED" in capfd.readouterr().err


@pytest.mark.parametrize("command", [("publish", "a", "x"), ("subscribe", "a")])
def test_if_all_are_down_it_says_so(run: Run, capfd, tmp_path: Path, nobody: str, command: tuple[str, ...]) -> None:
    stack(tmp_path, nobody, nobody)
    assert run(*command) == 1
    assert "check `waystation status`" in capfd.readouterr().err


def test_after_a_loss_the_same_gateway_is_tried_first_and_then_the_others() -> None:
    a, b, c = (Address("127.0.0.1", port) for port in (1, 2, 3))
    turns = InTurn([a, b, c])
    assert [turns(), turns()] == [a, b]
    assert turns.has_more
    turns.connected()
    assert [turns(), turns(), turns(), turns()] == [b, c, a, b]
