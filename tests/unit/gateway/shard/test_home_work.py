"""A record that costs much keeps nobody waiting: the work of a turn of the event loop is bounded (R9)."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.host.host_server import HostServer
from gateway.record import Record
from gateway.shard import work as works
from gateway.shard.egress_consumer import LARGE
from gateway.shard.work import RECIPIENT, SLICE, Work
from mqtt.packets import Connect, Pingreq, Pingresp, Puback, Publish, Suback, Subscribe, Subscription, Unsubscribe
from tests.unit.gateway.host.test_host_connection import Wire, connect, hosted
from tests.unit.gateway.shard.home_harness import HomeHarness, turn
from tests.unit.gateway.shard.virtual_time import run

ROUTED_S = 60
"""By then every route is in effect: messages come by instructions, before by direct deliveries."""

by_either_way = pytest.mark.parametrize("after_s", [0, ROUTED_S], ids=["direct deliveries", "instructions"])

OVERLAPPING = ["/".join([*("+" if n >> bit & 1 else "a" for bit in range(10)), *["+"] * 20]) for n in range(1_000)]
"""Filters of 30 levels that all match `topic(n)`."""


def topic(number: int) -> str:
    return "/".join([*["a"] * 10, *["b"] * 19, str(number)])


class CountedWork(Work):
    """Notes what each turn has spent; `between` is called after each."""

    def __init__(self, between: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self.turns: list[int] = []
        self._between = between

    def pause(self, is_half: bool) -> None:
        self.turns.append(self.spent)
        super().pause(is_half)
        self._between()


async def subscribed(server: HostServer, client: str, filters: list[str], qos: int = 0) -> Wire:
    """With a hundred filters to an identifier."""
    wire = Wire(server).send(connect(client))
    for start in range(0, len(filters), 100):
        some = [Subscription(f, qos) for f in filters[start : start + 100]]
        wire.send(Subscribe(1, some, {"subscription_identifier": [start + 1]}))
    await turn()
    assert sum(isinstance(packet, Suback) for packet in wire.received) == len(range(0, len(filters), 100))
    wire.received.clear()
    return wire


@pytest.fixture
def short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(works, "TURN", 500)


def delivered(wires: list[Wire]) -> list[Publish]:
    return [packet for wire in wires for packet in wire.received if isinstance(packet, Publish)]


def assert_bounded(work: CountedWork) -> None:
    assert max(work.turns) <= works.TURN + SLICE + RECIPIENT * LARGE


@by_either_way
def test_overlapping_filters_within_the_limits_hold_nobody_up(tmp_path: Path, after_s: int) -> None:
    """Five clients with a thousand overlapping filters of 30 levels, and new topics: another connection is answered
    after each turn of that work, before the next one."""

    async def scenario() -> None:
        harness, server = await hosted(tmp_path)
        wires = [await subscribed(server, f"c{number}", OVERLAPPING) for number in range(5)]
        await turn(after_s)
        other, publisher = Wire(server).send(connect("other")), Wire(server).send(connect("publisher"))
        await turn()
        other.received.clear()
        answered: list[int] = []

        def ping() -> None:
            answered.append(len(other.received))
            other.send(Pingreq())

        work = harness.node.work = CountedWork(ping)
        publisher.send(*(Publish(topic(number), b"x") for number in range(10)))
        await turn()
        assert_bounded(work)
        assert len(work.turns) >= 20, "it was work for many turns"
        assert answered == list(range(len(answered)))
        assert other.received == [Pingresp()] * len(answered)
        assert len(delivered(wires)) == 50
        identifiers = sorted(start + 1 for start in range(0, 1000, 100) for _ in range(100))
        for packet in delivered(wires):
            assert sorted((packet.properties or {})["subscription_identifier"]) == identifiers
        assert not harness.fatal
        await server.stop()

    run(scenario())


@by_either_way
@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.usefixtures("short_turns")
def test_a_message_to_very_many_is_offered_in_steps(tmp_path: Path, after_s: int, qos: int) -> None:
    """Each of them gets it once, though the first have acknowledged it before the last are offered it; it is finished
    once, when all have."""

    async def scenario() -> None:
        harness, server = await hosted(tmp_path)
        wires = [await subscribed(server, f"c{number}", ["a/+"], qos) for number in range(500)]
        await turn(after_s)

        def acknowledge() -> None:
            for wire in wires:
                for packet in wire.received:
                    if isinstance(packet, Publish) and packet.qos and not isinstance(wire.received[-1], Puback):
                        wire.received.append(Puback(packet.packet_id))
                        wire.send(Puback(packet.packet_id))

        work = harness.node.work = CountedWork(acknowledge)
        Wire(server).send(connect("publisher"), Publish("a/b", b"x", qos, packet_id=qos))
        await turn()
        acknowledge()
        await turn(ROUTED_S)
        assert_bounded(work)
        assert len(work.turns) >= 10
        assert [packet.payload for packet in delivered(wires)] == [b"x"] * 500
        assert harness.node.counts["delivered" if qos else "sent"] == 500
        assert all(not shard.live and not shard.direct for shard in harness.home.states)
        assert not harness.fatal
        await server.stop()

    run(scenario())


@by_either_way
@pytest.mark.usefixtures("short_turns")
def test_who_ends_or_unsubscribes_meanwhile_gets_nothing(tmp_path: Path, after_s: int) -> None:
    """Between two steps of one record a session ends, another is replaced by a new one with the same filters, and a
    client unsubscribes. A client that keeps another subscription that matches gets the message."""

    async def scenario() -> None:
        harness, server = await hosted(tmp_path)
        wires = {f"c{number}": await subscribed(server, f"c{number}", ["a/+", "a/#"], 1) for number in range(300)}
        await turn(after_s)
        untouched = [name for name, wire in wires.items() if harness.home.home_of(name).number == 0][-8:]
        ended, renewed, unsubscribed, narrowed = untouched[:2], untouched[2:4], untouched[4:6], untouched[6:]
        meanwhile = list[asyncio.Task[object]]()

        def between() -> None:
            if meanwhile or not delivered(list(wires.values())):
                return
            assert not delivered([wires[name] for name in untouched])
            for name in ended:
                meanwhile.append(asyncio.ensure_future(harness.home.kick(name, end_session=True)))
            for name in renewed:
                again = Subscribe(1, [Subscription("a/+", 1), Subscription("a/#", 1)])
                wires[name] = Wire(server).send(Connect(name, 5, True), again)
            for name in unsubscribed:
                wires[name].send(Unsubscribe(9, ["a/+", "a/#"]))
            for name in narrowed:
                wires[name].send(Unsubscribe(9, ["a/+"]))

        harness.node.work = CountedWork(between)
        Wire(server).send(connect("publisher"), Publish("a/b", b"x", 1, packet_id=1))
        await turn()
        assert meanwhile
        got = {name: len(delivered([wire])) for name, wire in wires.items()}
        assert {name for name, count in got.items() if not count} == {*ended, *renewed, *unsubscribed}
        assert set(got.values()) == {0, 1}
        for wire in wires.values():
            for packet in delivered([wire]):
                wire.send(Puback(packet.packet_id))
        await turn(ROUTED_S)
        assert all(not shard.live and not shard.direct for shard in harness.home.states)
        assert not harness.fatal
        await server.stop()

    run(scenario())


@by_either_way
@pytest.mark.usefixtures("short_turns")
def test_who_subscribes_again_meanwhile_gets_the_message(tmp_path: Path, after_s: int) -> None:
    """Between two steps of one record subscriptions are replaced [MQTT-3.8.4-4]: none loses the message."""

    async def scenario() -> None:
        harness, server = await hosted(tmp_path)
        wires = {f"c{number}": await subscribed(server, f"c{number}", ["a/+"], 1) for number in range(300)}
        await turn(after_s)
        replacing = list[str]()

        def between() -> None:
            if replacing or not delivered(list(wires.values())):
                return
            replacing.extend(name for name, wire in wires.items() if not delivered([wire]))
            for name in replacing:
                again = Subscription("a/+", 2, retain_handling=2)
                wires[name].send(Subscribe(9, [again], {"subscription_identifier": [7]}))

        harness.node.work = CountedWork(between)
        Wire(server).send(connect("publisher"), Publish("a/b", b"x", 1, packet_id=1))
        await turn()
        assert len(replacing) > 100
        assert {name: len(delivered([wire])) for name, wire in wires.items()} == dict.fromkeys(wires, 1)
        assert not harness.fatal
        await server.stop()

    run(scenario())


def test_a_checkpoint_sees_whole_records_only(tmp_path: Path) -> None:
    """Who waits goes on at the end of a record, before the next one begins, however many follow."""

    async def scenario() -> None:
        work, seen = Work(), list[str]()

        async def checkpoint() -> None:
            await work.whole()
            seen.append("checkpoint")

        def record(number: int) -> None:
            seen.append(f"begin {number}")
            work.pause(is_half=True)
            asyncio.get_running_loop().call_soon(end, number)

        def end(number: int) -> None:
            seen.append(f"end {number}")
            work.pause(is_half=False)
            if number < 3:
                asyncio.get_running_loop().call_soon(record, number + 1)

        record(1)
        await checkpoint()
        assert seen == ["begin 1", "end 1", "checkpoint"]

    run(scenario())


@pytest.mark.parametrize("held", [True, False])
def test_the_bus_waits_with_more_until_a_batch_is_applied(tmp_path: Path, held: bool) -> None:
    """And whoever stops consuming waits for what was handed over: nothing comes later."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        loop, bus, batches = asyncio.get_running_loop(), harness.bus, list[int]()
        applied = loop.create_future()

        def take(batch: list[Record]) -> asyncio.Future[None] | None:
            batches.append(len(batch))
            return applied if held else None

        bus.start(take)
        place = (harness.topics.retained, 0)
        bus.produce(*place, b"a", b"", None, lambda error, record: None)
        await turn()
        bus.produce(*place, b"a", b"", None, lambda error, record: None)
        stopping = asyncio.ensure_future(bus.unassign([place]))
        await turn()
        assert (len(batches), stopping.done()) == ((1, False) if held else (2, True))
        applied.set_result(None)
        await stopping

    run(scenario())


@pytest.mark.parametrize("is_lost", [False, True])
def test_what_one_read_brings_is_not_taken_all_at_once(tmp_path: Path, is_lost: bool) -> None:
    """Ten thousand small packets fit into one: others are served meanwhile. All of them take effect, in order, though
    the client has gone."""

    async def scenario() -> None:
        harness, server = await hosted(tmp_path, client_in_flight_messages=100_000)
        wire = Wire(server).send(connect("c"))
        await turn()
        wire.send(*(Publish(f"a/{number}", b"") for number in range(3_000)))
        if is_lost:
            wire.lose()
        taken = harness.bus.in_flight
        assert 0 < taken < 1_000
        await asyncio.sleep(0)
        await turn()
        topics = [r.key() for p in range(2) for r in harness.broker.partitions[harness.topics.ingress, p]]
        assert topics == [f"a/{number}".encode() for number in range(3_000)]
        assert (wire.connection in server.connections) != is_lost
        await server.stop()

    run(scenario())
