"""What waits for a client that is away, and came in bundles, ends by its receipts or by its own acknowledgements: once,
never without one of them, over crashes and restarts, whoever is faster (M14, M15, M21, Q1)."""

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from gateway.shard.messages import Message
from gateway.shard.rules import EVERYTHING
from gateway.shard.waiting_bundles import Ended
from mqtt.packets import Publish
from schemas.envelope import BundleMark
from schemas.identity import message_id_of
from tests import draw
from tests.unit.gateway.shard.home_client import Client
from tests.unit.gateway.shard.home_harness import HomeHarness, turn
from tests.unit.gateway.shard.test_home_bundles import Nobody
from tests.unit.gateway.shard.virtual_time import run

DEVICE, ORIGINATOR = "device", "agent"
SPOOLED_S = 6.0
SEEDS = draw.some(range(60), 3, "receipts")


class Waiting:
    """A home, a device, and what came in bundles for it, by number."""

    def __init__(self, harness: HomeHarness, device: Client) -> None:
        self.harness, self.device = harness, device
        self.ids: list[str] = []
        self.ended: dict[str, Counter[bytes]] = {}  # what the device had got by then
        self.unanswered: Counter[str] = Counter()  # of valid receipts: the gateway may have been killed behind the end

    @classmethod
    async def begin(cls, directory: Path) -> "Waiting":
        harness = await HomeHarness(directory).start()
        return cls(harness, await harness.client(DEVICE))

    def put(self, count: int = 1) -> None:
        """Bundles come, and sometimes a message that is none."""
        for _ in range(count):
            sequence = len(self.ids) + 1
            message_id = message_id_of(ORIGINATOR, 7, sequence)
            self.ids.append(message_id)
            publisher = self.harness.home.bundle_publisher(ORIGINATOR, Nobody(), EVERYTHING)
            packet = Publish(f"@{DEVICE}", message_id.encode(), 2, packet_id=1)
            publisher.publish(packet, message_id, BundleMark(7, sequence, 1))

    async def receipt(self, *message_ids: str, is_valid: bool = True) -> Ended:
        def is_settled(message: Message) -> bool:
            assert message.payload == message.id.encode()
            return is_valid

        waiting = self.harness.shard_of(DEVICE).waiting
        ended = await waiting.end(DEVICE, frozenset(message_ids), is_settled)
        for message_id in ended.ended:
            self.ended.setdefault(message_id, Counter(self.device.payloads))
        return ended

    async def read(self) -> list[str]:
        """The ids of all that a carrier would be given."""
        found, after = list[str](), 0
        while True:
            page = await self.harness.shard_of(DEVICE).waiting.page(DEVICE, after)
            found += [message.id for _, message in page.messages]
            if page.is_last:
                return found
            after = page.read_to

    def check(self) -> None:
        """At the end, when the device has had all the time."""
        got = Counter(self.device.payloads)
        for message_id in self.ids:
            if message_id not in self.harness.published():
                continue  # the gateway was killed before
            payload = message_id.encode()
            assert got[payload] <= 1, "QoS 2"
            may_have_ended = message_id in self.ended or self.unanswered[message_id] > 0
            assert got[payload] or may_have_ended, f"{message_id} is lost"
            if message_id in self.ended:
                assert got[payload] == self.ended[message_id][payload], f"{message_id} came after its end"
            assert message_id in self.harness.completed()
        assert set(self.harness.outcomes(DEVICE)) <= {"delivered"}
        assert self.harness.relinquished() == self.harness.instructions()
        assert self.harness.spool_rows() == 0
        assert not self.harness.fatal

    async def finish(self) -> None:
        """The device comes back and answers everything."""
        if not self.harness.is_up:
            await self.harness.start()
        self.device.mute = False
        await self.device.connect()
        self.device.answer_all()
        await turn(30)
        self.check()


def test_only_a_valid_receipt_ends_a_row_and_reading_does_not(tmp_path: Path) -> None:
    """M12, M15: nothing ends without one, over a restart; what has ended stays so."""

    async def scenario() -> None:
        waiting = await Waiting.begin(tmp_path)
        waiting.device.lose()
        waiting.put(40)
        await turn(SPOOLED_S)
        assert await waiting.read() == waiting.ids
        assert await waiting.receipt(*waiting.ids, is_valid=False) == Ended(frozenset(), frozenset())
        assert await waiting.read() == waiting.ids
        gone = waiting.ids[3:30]
        assert (await waiting.receipt(*gone)).ended == set(gone)
        assert (await waiting.receipt(*gone)).ended == set()
        left = [one for one in waiting.ids if one not in gone]
        assert await waiting.read() == left
        assert Counter(waiting.harness.outcomes(DEVICE)) == {"delivered": len(gone)}
        await waiting.harness.restart()
        assert await waiting.read() == left
        await waiting.finish()
        assert sorted(waiting.device.payloads) == sorted(one.encode() for one in left)

    run(scenario())


@pytest.mark.parametrize("wait_s", [0.0, SPOOLED_S], ids=["in memory", "in the spool"])
@pytest.mark.parametrize("is_back", [False, True], ids=["away", "back"])
@pytest.mark.parametrize("restarts", [False, True], ids=["", "restarted"])
def test_what_was_sent_and_not_answered_keeps_its_packet_id(
    tmp_path: Path, wait_s: float, is_back: bool, restarts: bool
) -> None:
    """M14, G8: after the receipt the device gets PUBREL, and the id is used again only then. A connected device
    answers itself."""

    async def scenario() -> None:
        waiting = await Waiting.begin(tmp_path)
        waiting.device.mute = True
        waiting.put(3)
        await turn()
        assert len(waiting.device.got) == 3
        waiting.device.lose()
        waiting.put(2)
        await turn(0.2 + wait_s)
        if restarts:
            await waiting.harness.restart()
            await turn(1.0)
        if is_back:
            await waiting.device.connect()
            await turn()
        first, *_, last = waiting.ids
        ended = await waiting.receipt(first, last)
        if is_back:  # all five were sent to it
            assert (ended.ended, ended.later) == (set(), {first, last})
        else:
            assert ended.ended == {first, last}
        waiting.put(2)
        await waiting.finish()

    run(scenario())


@pytest.mark.parametrize("seed", SEEDS)
def test_receipts_acknowledgements_and_crashes_in_any_order(tmp_path: Path, seed: int) -> None:
    """M14, M21, Q1: the sequence is drawn."""

    async def scenario() -> None:
        chance = draw.generator(f"receipts {seed}")
        waiting = await Waiting.begin(tmp_path)
        device, harness, requests = waiting.device, waiting.harness, list[asyncio.Task[None]]()
        for _ in range(40):
            match chance.choice(["put", "put", "receipt", "receipt", "false", "away", "back", "turn", "long", "kill"]):
                case "put":
                    waiting.put(chance.randint(1, 4))
                case "receipt" if waiting.ids:
                    chosen = chance.sample(waiting.ids, min(len(waiting.ids), chance.randint(1, 5)))
                    requests.append(asyncio.create_task(_brought(waiting, chosen)))
                case "false" if waiting.ids:
                    assert not (await waiting.receipt(*waiting.ids, is_valid=False)).ended
                case "away":
                    device.lose()
                case "back" if device.link is None:
                    device.mute = chance.random() < 0.5
                    await device.connect()
                case "turn":
                    await turn(chance.choice([0.0, 0.05, 0.3]))
                case "long":
                    await turn(SPOOLED_S)
                case "kill":
                    await harness.restart()
        await turn(1.0)
        await waiting.finish()
        for request in requests:
            request.cancel()  # those to gateways that were killed wait for ever
        for result in await asyncio.gather(*requests, return_exceptions=True):
            assert result is None or isinstance(result, asyncio.CancelledError), result

    run(scenario())


async def _brought(waiting: Waiting, chosen: list[str]) -> None:
    """A request that dies with its gateway."""
    home = waiting.harness.home
    waiting.unanswered.update(chosen)
    ended = await home.home_of(DEVICE).waiting.end(DEVICE, frozenset(chosen), lambda message: True)
    if home is waiting.harness.home and waiting.harness.is_up:
        waiting.unanswered.subtract(chosen)
        for message_id in ended.ended:
            waiting.ended.setdefault(message_id, Counter(waiting.device.payloads))
