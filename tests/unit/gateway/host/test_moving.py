"""Clients keep their connection when their shard moves to another gateway of the machine (R5, G8, R8)."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.host import arriving
from gateway.sockets.channel import Channel
from mqtt.codes import ReasonCode
from mqtt.encode import encode
from mqtt.packets import (
    Disconnect,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Subscribe,
    Subscription,
    Will,
)
from tests.unit.gateway.host.moving_gateways import MovingGateways
from tests.unit.gateway.host.raw_client import subscribe

KEPT = {"session_expiry_interval": 3600}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[MovingGateways]:
    with MovingGateways(tmp_path) as site:
        yield site


def test_a_client_goes_on_where_its_shard_is(site: MovingGateways) -> None:
    """R5: it is sent nothing about that; both ways go on, with their aliases, in the middle of a packet."""
    [name, *_] = site.harness.names(0)
    before, after = site.owner(0), site.hosts[2]
    with site.client(name) as client:
        client.connect(name, properties=KEPT | {"topic_alias_maximum": 5})
        subscribe(client, Subscription("a/#", 2))
        client.publish("a/x", b"1", 1, 1, properties={"topic_alias": 1})
        took = {type(packet): packet for packet in (client.take_any(), client.take_any())}
        first = took[Publish]
        assert isinstance(first, Publish)
        assert first.topic == "a/x"
        client.send(Puback(first.packet_id))
        packet = encode(Publish("", b"2", 1, packet_id=2, properties={"topic_alias": 1}), 5)
        client.send_bytes(packet[:5])
        site.move(0, after)
        client.send_bytes(packet[5:])
        took = {type(packet): packet for packet in (client.take_any(), client.take_any())}
        assert took[Puback] == Puback(2)
        second = took[Publish]
        assert isinstance(second, Publish)
        assert (second.payload, second.dup) == (b"2", False)
        client.send(Pingreq())
        client.take(Pingresp)
        assert before.count("closed_moved") == 1
        assert len(before.server.connections) == 0
        assert len(after.server.connections) == 1


def test_what_a_client_has_in_hand_is_not_sent_again(site: MovingGateways) -> None:
    """G8: at QoS 1 and 2, received or not; what waits for room in its window follows once the client answers."""
    [name, *_] = site.harness.names(0)
    with site.client(name) as client, site.client("sender") as sender:
        client.connect(name, properties=KEPT | {"receive_maximum": 4})
        subscribe(client, Subscription("a/#", 2))
        sender.connect("sender")
        for number in range(8):
            sender.publish("a/x", b"%d" % number, 1 + number % 2, number + 1)
        first = [client.take(Publish) for _ in range(4)]
        assert [packet.payload for packet in first] == [b"0", b"1", b"2", b"3"]
        client.send(Pubrec(first[1].packet_id))
        client.take(Pubrel)
        site.move(0, site.hosts[2])
        client.send(Pingreq())
        client.take(Pingresp)
        client.send(Puback(first[0].packet_id))
        fourth = client.take(Publish)
        assert (fourth.payload, fourth.dup) == (b"4", False)
        client.send(Pingreq())
        client.take(Pingresp)
        client.send(Pubcomp(first[1].packet_id))
        assert client.take(Publish).payload == b"5"
        client.send(Pubrec(first[3].packet_id))
        assert client.take(Pubrel).packet_id == first[3].packet_id
        client.send(Pubcomp(first[3].packet_id))
        assert client.take(Publish).payload == b"6"
        client.send(Puback(first[2].packet_id))
        assert client.take(Publish).payload == b"7"
        client.send(Pingreq())
        client.take(Pingresp)


def test_what_is_in_the_spool_is_in_hand_too(site: MovingGateways) -> None:
    """Retained messages sent on SUBSCRIBE are there: no log brings them again."""
    [name, *_] = site.harness.names(0)
    with site.client(name) as client, site.client("sender") as sender:
        sender.connect("sender")
        for number in range(4):
            sender.publish(f"r/{number}", b"%d" % number, 1, number + 1, retain=True)
        for _ in range(4):
            sender.take(Puback)
        client.connect(name, properties=KEPT)
        client.send(Subscribe(1, [Subscription("r/#", 2)]))
        packets = [client.take_any() for _ in range(5)]
        got = [packet for packet in packets if isinstance(packet, Publish)]
        assert len(got) == 4
        site.move(0, site.hosts[2])
        site.move(0, site.hosts[0])
        client.send(Puback(got[0].packet_id))
        client.send(*(Puback(packet.packet_id) for packet in got[1:]))
        client.send(Pingreq())
        client.take(Pingresp)
        site.call(lambda: None)
        home = site.owner(0).gateway.home
        assert home.session(name) is not None
        assert not home.session(name).in_flight  # type: ignore[union-attr]


def test_what_a_client_sends_meanwhile_waits(site: MovingGateways) -> None:
    """Nothing is read before the shard is there; then each is answered, in order, and QoS 2 exchanges go on."""
    [name, *_] = site.harness.names(0)
    with site.client(name) as client:
        client.connect(name, properties=KEPT)
        client.publish("b/1", b"1", 2, 1)
        client.take(Pubrec)
        client.publish("b/1", b"2", 2, 2)
        site.give_up(0, site.hosts[2])
        for number in range(3, 30):
            client.publish("b/1", b"%d" % number, number % 3, number if number % 3 else 0)
        client.send(Pubrel(1))
        site.take_over(0, site.hosts[2])
        answers = [client.take_any() for _ in range(20)]
        assert [type(answer) for answer in answers if isinstance(answer, Pubcomp)] == [Pubcomp]
        assert {p.packet_id for p in answers if isinstance(p, Puback)} == set(range(4, 30, 3))
        assert {p.packet_id for p in answers if isinstance(p, Pubrec)} == {2, *range(5, 30, 3)}
        assert all(p.reason_code is ReasonCode.SUCCESS for p in answers if isinstance(p, Puback | Pubrec))
        client.publish("b/1", b"2", 2, 2, dup=True)
        assert client.take(Pubrec).packet_id == 2
    topic, broker = site.harness.topics.ingress, site.harness.broker
    found = [record for (of, _), records in broker.partitions.items() if of == topic for record in records]
    assert [int(record.value() or b"0") for record in found if record.key() == b"b/1"] == list(range(1, 30))


def test_a_packet_comes_in_pieces_over_two_moves(site: MovingGateways) -> None:
    """3.1.1, and a shard that moves on at once: whatever is where, each byte counts once."""
    [name, *_] = site.harness.names(0)
    packet = encode(Publish("a/x", bytes(range(250)) * 40, 1, packet_id=7), 4)
    with site.client(name, 4) as client:
        client.connect(name, clean_start=False)
        client.send_bytes(packet[:1])
        site.move(0, site.hosts[2])
        client.send_bytes(packet[1:2_000])
        site.give_up(0, site.hosts[1])
        client.send_bytes(packet[2_000:9_000])
        site.take_over(0, site.hosts[1])
        client.send_bytes(packet[9_000:])
        assert client.take(Puback).packet_id == 7
        client.send(Disconnect())
        assert client.ended() == []


def test_receive_maximum_and_keep_alive_go_on(site: MovingGateways) -> None:
    """What CONNACK has said holds, and what the client has open counts: one more ends the connection (0x93)."""
    [name, *_] = site.harness.names(0)
    with site.client(name) as client:
        most = client.connect(name, keep_alive=600, properties=KEPT).properties["receive_maximum"]  # type: ignore[index]
        for number in range(1, most + 1):
            client.publish("a/x", b"", 2, number)
        for _ in range(most):
            client.take(Pubrec)
        site.move(0, site.hosts[2])
        [connection] = site.hosts[2].server.connections
        assert connection._core._keep_alive_s == 600  # type: ignore[attr-defined]
        client.publish("a/x", b"", 1, most + 1)
        [last] = client.ended()
        assert isinstance(last, Disconnect)
        assert last.reason_code is ReasonCode.RECEIVE_MAXIMUM_EXCEEDED


def test_a_will_is_published_only_when_the_connection_ends(site: MovingGateways) -> None:
    """G9: a move is no loss; presence says where the client is."""
    [name, *_] = site.harness.names(0)
    watching, *_ = site.harness.names(1)
    with site.client(watching) as watcher:
        watcher.connect(watching)
        subscribe(watcher, Subscription("w/#", 1))
        with site.client(name) as client:
            client.connect(name, properties=KEPT, will=Will("w/1", b"gone", 1))
            site.move(0, site.hosts[2])
            watcher.send(Pingreq())
            watcher.take(Pingresp)
        assert watcher.take(Publish).payload == b"gone"
    events = site.harness.presence(name)
    assert [event.event for event in events] == ["connected", "connected", "lost"]
    assert events[0].epoch < events[1].epoch == events[2].epoch


# -- what fails --------------------------------------------------------------------------------------------------------


def test_the_next_gateway_is_on_another_machine(site: MovingGateways) -> None:
    """Nobody answers: clients are disconnected (0x9D), and come back, as ever."""
    [name, *_] = site.harness.names(0)
    with site.client(name) as client:
        client.connect(name, properties=KEPT)
        site.run(site.owner(0).gateway.home.hand_over(0, "elsewhere"))
        [last] = client.ended()
        assert isinstance(last, Disconnect)
        assert last.reason_code is ReasonCode.SERVER_MOVED
    site.take_over(0, site.hosts[2])
    with site.client(name) as client:
        assert client.connect(name, clean_start=False, properties=KEPT).session_present


@pytest.mark.parametrize("at", ["offered", "taken"])
def test_the_next_gateway_dies(site: MovingGateways, monkeypatch: pytest.MonkeyPatch, at: str) -> None:
    """Before it has the sockets, or with them: clients come back to whoever has the shard, and nothing is lost or
    twice."""
    [name, *_] = site.harness.names(0)
    third = site.hosts[2]
    with site.client(name) as client, site.client("sender") as sender:
        client.connect(name, properties=KEPT)
        subscribe(client, Subscription("a/#", 2))
        sender.connect("sender")
        sender.publish("a/x", b"1", 2, 1)
        first = client.take(Publish)
        if at == "offered":
            monkeypatch.setattr(third.moves, "_take", lambda channel, _, sockets: end(channel, sockets))
        site.give_up(0, third)
        if at == "taken":
            [waiting] = third.moves._waiting.pop(0)
            site.call(waiting.socket.close)
        client.ended()
    site.take_over(0, site.hosts[1])
    with site.client(name) as client:
        assert client.connect(name, clean_start=False, properties=KEPT).session_present
        again = client.take(Publish)
        assert (again.packet_id, again.dup, again.payload) == (first.packet_id, True, b"1")
        client.send(Pubrec(again.packet_id))
        client.take(Pubrel)
        client.send(Pubcomp(again.packet_id), Pingreq())
        client.take(Pingresp)


def end(channel: Channel, sockets: list[socket.socket]) -> None:
    """What the system does for a process that is killed."""
    channel.close()
    for one in sockets:
        one.close()


@pytest.mark.parametrize("moves_again", [False, True])
def test_the_owner_keeps_its_shard(site: MovingGateways, monkeypatch: pytest.MonkeyPatch, moves_again: bool) -> None:
    """The move fails after the sockets have passed: the gateway that has them ends them after a while (0x9D), or when
    the shard comes after all, as its sessions have gone on meanwhile."""
    monkeypatch.setattr(arriving, "WAIT_S", 60.0 if moves_again else 0.2)
    [name, *_] = site.harness.names(0)
    with site.client(name) as client:
        client.connect(name, properties=KEPT)
        owner = site.owner(0)
        site.give_up(0, site.hosts[2])
        site.take_over(0, owner)
        if moves_again:
            site.move(0, site.hosts[2])
        [last] = client.ended()
        assert isinstance(last, Disconnect)
        assert last.reason_code is ReasonCode.SERVER_MOVED
    with site.client(name) as client:
        assert client.connect(name, clean_start=False, properties=KEPT).session_present
