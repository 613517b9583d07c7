"""What an owner that has lost its shard still writes about redundant feeds is void for the next one (G6, Q7, S3).

Its Kafka client sends what it had queued once it reaches the broker again.
"""

from pathlib import Path

import pytest

from gateway.memory_bus import MemoryRecord
from gateway.shard.feed_records import Decided, Written, copy_record, decision_record
from tests.unit.gateway.shard.clustered import Clustered
from tests.unit.gateway.shard.feed_harness import FEED, A, B, FeedHarness
from tests.unit.gateway.shard.home_client import Client
from tests.unit.gateway.shard.home_harness import LEAD_S, PARTITIONS, turn
from tests.unit.gateway.shard.test_home_feeds import sequences
from tests.unit.gateway.shard.two_gateways import Gateway
from tests.unit.gateway.shard.virtual_time import run


class FeedGateways(FeedHarness, Clustered):
    """Gateways that share shards, with the feed."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, reorder_ms=2_000, deadline_ms=8_000, silent_ms=5_000)
        self.environment["WAYSTATION_GATEWAY__CLUSTER__ENABLED"] = "true"
        self.environment["WAYSTATION_KAFKA__INGRESS_PARTITIONS"] = str(PARTITIONS)

    async def begin(self) -> Client:
        """A subscriber in shard 1, whose route is in effect."""
        await Clustered.start(self)
        receiver = await self.client(self.names(1)[0])
        await receiver.subscribe(f"feeds/{FEED}/#")
        await turn(LEAD_S + 5)
        return receiver

    async def superseded(self) -> Gateway:
        """The owner is cut off, while something is still missing, and another one takes over."""
        zombie = self.cut_off(1)
        await turn(2.5)  # it gives up what is missing, and that is not stored
        zombie.is_up = False
        for client in self.clients:
            client.lose()
        await self.take_over(1, self.gateways[2])
        await self.reconnect()
        return zombie

    def append(self, written: Written) -> None:
        """A home writes a record to the `egress` of the shard."""
        self.broker.append(MemoryRecord((self.topics.egress, 1), *written))

    def fenced_records(self) -> int:
        return sum(gateway.node.counts["feed_records_fenced"] for gateway in self.gateways)


def test_what_the_earlier_owner_gives_up_late_is_not_lost(tmp_path: Path) -> None:
    """The next owner waits for it as long as the settings say."""

    async def scenario() -> None:
        harness = FeedGateways(tmp_path)
        receiver = await harness.begin()
        for sequence in (0, 2):
            harness.copy(A, sequence)
            harness.copy(B, sequence)
        await turn(0.5)
        zombie = await harness.superseded()
        harness.wake(zombie)
        await turn(0.5)
        harness.copy(A, 1)
        await turn(1)
        assert sequences(receiver) == [0, 1, 2]
        assert harness.fenced_records() == 1
        assert harness.gateways[2].node.counts["feed_lost"] == 0
        assert not harness.fatal

    run(scenario())


@pytest.mark.parametrize("epoch", [1, 2, 0], ids=["the earlier owner", "the owner", "an earlier version"])
def test_whose_decisions_count(tmp_path: Path, epoch: int) -> None:
    """Those of the owner, and of homes that name no epoch, as earlier versions."""

    async def scenario() -> None:
        harness = FeedGateways(tmp_path)
        receiver = await harness.begin()
        harness.copy(A, 0)
        await turn(0.5)
        await harness.superseded()
        await turn(0.5)
        harness.copy(A, 2)
        await turn(0.1)
        harness.append(decision_record(FEED, [Decided("give_up", "radar@0", 1, "deadline")], epoch))
        await turn(0.5)
        assert sequences(receiver) == ([0] if epoch == 1 else [0, 2])
        assert harness.fenced_records() == (epoch == 1)
        assert not harness.fatal

    run(scenario())


def test_a_late_copy_wakes_no_stream(tmp_path: Path) -> None:
    """The earlier owner has read it on `ingress`, for a subscription that is over."""

    async def scenario() -> None:
        harness = FeedGateways(tmp_path)
        receiver = await harness.begin()
        for sequence in range(3):
            harness.copy(A, sequence)
        await turn(0.5)
        await harness.superseded()
        on_ingress = [r for p in range(PARTITIONS) for r in harness.broker.partitions[harness.topics.ingress, p]]
        [copied] = [r for r in on_ingress if b" 2.0 " in (r.value() or b"")]
        harness.append(decision_record(FEED, [Decided("pause")], 2))
        await turn(0.5)
        harness.append(copy_record(copied, 1))
        await turn(0.5)
        for sequence in (50, 51):
            harness.copy(A, sequence)
        await turn(0.5)
        assert sequences(receiver) == [0, 1, 2, 50, 51], "what comes after the pause follows no gap"
        assert harness.fenced_records() == 1
        assert not harness.fatal

    run(scenario())


def test_a_restart_knows_whose_records_are_void(tmp_path: Path) -> None:
    """The position of the shard has passed the fence; what stands behind it stays void for whoever reads it later."""

    async def scenario() -> None:
        harness = FeedGateways(tmp_path)
        receiver = await harness.begin()
        harness.copy(A, 0)
        await turn(0.5)
        await harness.superseded()
        await turn(30)  # a checkpoint has the position
        owner = harness.gateways[2]
        owner.bus.is_consuming = False
        harness.append(decision_record(FEED, [Decided("pause")], 1))
        harness.copy(A, 2)
        await turn(0.1)
        owner.kill()
        await harness.take_over(1, await harness.empty())
        await harness.reconnect()
        await turn(1)
        assert sequences(receiver) == [0], "it waits for the number before it"
        harness.copy(A, 1)
        await turn(1)
        assert sequences(receiver) == [0, 1, 2]
        assert not harness.fatal

    run(scenario())
