"""Sessions whose clients stay connected while their shard moves, under load, and whoever is killed (R5, G8, R8)."""

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from gateway.errors import GatewayError
from tests.draw import some
from tests.unit.gateway.shard.home_client import Client
from tests.unit.gateway.shard.home_harness import LEAD_S, turn
from tests.unit.gateway.shard.moving_clients import MovingSite
from tests.unit.gateway.shard.two_gateways import done_or_killed
from tests.unit.gateway.shard.virtual_time import VirtualLoop, run


class Load:
    """Two senders, and readers of which some answer late, at QoS 1 and 2."""

    def __init__(self, site: MovingSite) -> None:
        self.site = site
        self.sent: list[tuple[bytes, int]] = []
        self.senders: list[Client] = []
        self.readers: list[Client] = []

    async def begin(self, wait_s: float = LEAD_S + 5) -> None:
        """Before routes are in effect, after `wait_s`, messages come to the home directly."""
        self.senders = [await self.site.client(f"sender{n}") for n in range(2)]
        self.readers = [await self.site.client(f"reader{n}", receive_maximum=4 + n) for n in range(5)]
        for reader in self.readers:
            await reader.subscribe("c/#")
        await turn(wait_s)

    def publish(self, count: int) -> None:
        for _ in range(count):
            n = len(self.sent)
            sender, payload, qos = self.senders[n % 2], b"%d" % n, 1 + n // 2 % 2
            if sender.link is not None:
                self.sent.append((payload, qos))
                sender.publish("c/x", payload, qos)
            else:
                self.sent.append((b"", qos))

    def check(self, *, killed: bool) -> None:
        site = self.site
        assert not site.fatal
        wanted = [(payload, qos) for payload, qos in self.sent if payload]
        for payload, _ in wanted:
            assert any(payload in sender.acknowledged for sender in self.senders), f"{payload!r} is not acknowledged"
        for reader in self.readers:
            got = Counter(reader.payloads)
            for payload, qos in wanted:
                assert got[payload] == 1 or (killed and qos == 1 and got[payload]), f"{payload!r}: {got[payload]}"
            assert reader.most_in_flight <= reader.receive_maximum
            if not killed:
                assert not any(one.dup for one in reader.got)
            for number in range(2):
                own = [int(p) for p in dict.fromkeys(reader.payloads) if int(p) % 2 == number]
                assert own == sorted(own)
        assert site.relinquished() == site.instructions()
        assert site.completed() == set(site.published())
        assert site.spool_rows() == 0


@pytest.mark.parametrize("wait_s", [LEAD_S + 5, 0.1, LEAD_S - 5])
def test_clients_stay_through_many_moves(tmp_path: Path, wait_s: float) -> None:
    """Each goes on with what it has in hand, in both directions; nobody connects twice, and nothing is sent twice."""

    async def scenario() -> None:
        site = await MovingSite(tmp_path).start()
        load = Load(site)
        await load.begin(wait_s)
        one, two, three = site.gateways
        there = [(0, three), (1, three), (0, two), (1, one), (0, one)]
        for round, (number, target) in enumerate([*there, (0, three), (1, two), (0, two), (1, one), (0, one)]):
            load.readers[round % 5].mute = True
            load.publish(40)
            await turn(0.02)
            await site.give_up(number, target)
            load.publish(20)
            await site.take_over(number, target)
            load.publish(40)
            await turn(1)
            load.readers[round % 5].mute = False
            load.readers[round % 5].answer_all()
            await turn(0.01)
        for client in site.clients:
            assert (client.link is not None, client.closed_by) == (True, None), client.name
        await site.settle()
        load.check(killed=False)

    run(scenario())


@pytest.mark.parametrize("who", ["source", "target"])
@pytest.mark.parametrize("rounds", some(range(1, 200, 3), 4, "rounds of a move with its clients"))
def test_killed_at_each_step_of_a_move(tmp_path: Path, who: str, rounds: int) -> None:
    """Whoever has the sockets, and whoever is left: nothing is lost, nothing comes twice at QoS 2."""

    async def scenario() -> None:
        site = await MovingSite(tmp_path).start()
        load = Load(site)
        await load.begin()
        source, _, target = site.gateways
        load.readers[0].mute = load.readers[3].mute = True
        load.publish(60)
        await turn(0.02)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.call_at_turn(loop.turns + rounds, lambda: site.end(source if who == "source" else target))

        async def move() -> None:
            if site.owner(0) is not None:
                await site.give_up(0, target)
                await site.take_over(0, target)

        await done_or_killed(move(), 3, KeyError, GatewayError)
        load.publish(20)
        await turn(1)
        site.end(source if who == "source" else target)
        await site.take_up()
        await site.reconnect()
        load.publish(20)
        await site.settle()
        load.check(killed=True)

    run(scenario())
