"""Clients keep their connection when their shard moves to another gateway of the machine (R5, G8, R8)."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.errors import ShardLost
from gateway.host import arriving
from gateway.host.leaving import Leaving
from gateway.host.moved_connection import MovedConnection
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
from tests.unit.gateway.leases.test_fences_without_claims import write_fence
from tests.waiting import wait_for

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


def test_who_is_held_when_the_shard_is_lost_is_disconnected(
    site: MovingGateways, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another gateway has claimed the shard, and its fence is read before its claim: nobody would hear the client."""
    [name, *_] = site.harness.names(0)
    home = site.owner(0).gateway.home.shards[0]
    hold = Leaving.hold

    async def holds(leaving: Leaving) -> None:
        await hold(leaving)
        write_fence(site.harness, 0, 9)
        while not home.promises.is_lost:
            await asyncio.sleep(0)

    monkeypatch.setattr(Leaving, "hold", holds)
    with site.client(name) as client:
        client.connect(name, properties=KEPT)
        subscribe(client, Subscription("a/#", 2))
        with pytest.raises(ShardLost):
            site.give_up(0, site.hosts[2])
        assert client.take(Disconnect) == Disconnect(ReasonCode.SERVER_MOVED)


def test_a_shard_moves_again_before_its_clients_go_on(site: MovingGateways, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a client has in hand comes again only when the next move has begun: nothing more is read from it here."""
    [name, *_] = site.harness.names(0)
    all_in_hand, late = MovedConnection._all_in_hand, list[MovedConnection]()
    monkeypatch.setattr(MovedConnection, "_all_in_hand", lambda connection: late.append(connection))
    inner = encode(Publish("b/y", b"zz", 0), 5)
    packet = encode(Publish("a/z", b"payload" + inner, 1, packet_id=7), 5)
    with site.client(name) as client, site.client("sender") as sender:
        client.connect(name, properties=KEPT)
        subscribe(client, Subscription("a/#", 1))
        sender.connect("sender")
        sender.publish("a/x", b"1", 1, 1)
        client.take(Publish)
        site.move(0, site.hosts[2])
        wait_for(lambda: bool(late), "what the client has in hand")
        hold, offer = Leaving.hold, Leaving._offer

        async def holds(leaving: Leaving) -> None:
            await hold(leaving)
            all_in_hand(late.pop())

        async def offers(leaving: Leaving, channel: Channel, number: int, leavers: Any) -> int:
            client.send_bytes(packet[: -len(inner)])
            await asyncio.sleep(0.1)
            return await offer(leaving, channel, number, leavers)

        monkeypatch.setattr(Leaving, "hold", holds)
        monkeypatch.setattr(Leaving, "_offer", offers)
        monkeypatch.setattr(MovedConnection, "_all_in_hand", all_in_hand)
        site.move(0, site.hosts[1])
        with contextlib.suppress(OSError):
            client.send_bytes(packet[-len(inner) :])
        came = client.take_any()
        assert came == Puback(7) or isinstance(came, Disconnect)
        ingress = [records for (of, _), records in site.harness.broker.partitions.items() if of.endswith("ingress")]
        assert b"b/y" not in [record.key() for records in ingress for record in records], "a payload is no packet"
