"""The wall clock is set back while a gateway runs: what is due by it is not put off for as long (R8, R9)."""

from pathlib import Path

from mqtt.properties import NO_PROPERTIES
from schemas.session_log import WillRecord
from tests.unit.gateway.shard.clustered import Clustered
from tests.unit.gateway.shard.home_harness import LEAD_S, HomeHarness, turn
from tests.unit.gateway.shard.virtual_time import run

BACK_S = 86_400.0


class SetBack(HomeHarness):
    back_s = 0.0

    def clock(self) -> float:
        return super().clock() - self.back_s


async def with_an_offline_client(directory: Path) -> SetBack:
    harness = SetBack(directory)
    await harness.start()
    await harness.client("sender")
    offline = await harness.client("offline")
    await offline.subscribe("a/b")
    await turn(LEAD_S + 5)
    offline.lose()
    return harness


def publish(harness: HomeHarness, count: int) -> None:
    for number in range(count):
        harness.clients[0].publish("a/b", b"%d" % number, 1)


def test_messages_move_to_the_spool_all_the_same(tmp_path: Path) -> None:
    """Those from before, and those behind them: memory has only what is young."""

    async def scenario() -> None:
        harness = await with_an_offline_client(tmp_path)
        publish(harness, 3)
        await turn(1)
        harness.back_s = BACK_S
        publish(harness, 3)
        await turn(20)
        assert harness.spool_rows() == 6

    run(scenario())


def test_a_spool_that_fails_is_tried_again_all_the_same(tmp_path: Path) -> None:
    async def scenario() -> None:
        harness = await with_an_offline_client(tmp_path)
        harness.spool.fill_disk()
        for number in range(200):
            harness.clients[0].publish("a/b", b"%d" % number * 500, 1)
        await turn(20)
        assert harness.home.spool_fault
        harness.back_s = BACK_S
        harness.spool.free_disk()
        await turn(20)
        assert not harness.home.spool_fault
        assert harness.spool_rows() == 200

    run(scenario())


def test_a_route_that_an_earlier_owner_drops_late_is_added_again_all_the_same(tmp_path: Path) -> None:
    async def scenario() -> None:
        harness = await Clustered(tmp_path).start()
        sender = await harness.client(harness.names(0)[0])
        receiver = await harness.client(harness.names(1)[0])
        await receiver.subscribe("a")
        await turn(LEAD_S + 5)
        owner = harness.owner(1)
        assert owner is not None
        owner.node.clock = lambda: harness.clock() - BACK_S
        harness.drop_late(1, "a")
        for number in range(2 * int(LEAD_S) + 60):
            sender.publish("a", b"%d" % number, 1)
            await turn(1)
        assert receiver.payloads == [b"%d" % number for number in range(2 * int(LEAD_S) + 60)]
        assert not harness.fatal

    run(scenario())


def test_numbers_of_connections_and_sessions_grow_over_a_restart(tmp_path: Path) -> None:
    """R12: a former life has run for an hour, and given numbers meanwhile. What is later counts for more."""

    async def scenario() -> None:
        harness = SetBack(tmp_path)
        await harness.start()
        await turn(3_600)
        client = await harness.client("client", expiry_s=0)
        other = await harness.client("other", expiry_s=0)
        before = [one.attached.session for one in (client, other)]
        await turn(5)
        for _ in range(2):
            harness.crash()
            harness.back_s += 3 * 3_600
            await harness.start()
            await turn(1)
            now = [(await one.connect()).attached.session for one in (client, other)]
            assert all(later.epoch > earlier.epoch for earlier, later in zip(before, now, strict=True))
            assert all(later.born_us > earlier.born_us for earlier, later in zip(before, now, strict=True))
            before = now
            await turn(5)
        await turn(600)
        assert not harness.fatal

    run(scenario())


def test_a_will_is_published_also_if_the_numbers_before_it_were_in_no_checkpoint(tmp_path: Path) -> None:
    """R12: numbers follow those of a former life, not the clock; two lives are killed before their first checkpoint."""

    async def scenario() -> None:
        harness = SetBack(tmp_path)
        harness.environment["WAYSTATION_GATEWAY__CHECKPOINT_S"] = "60"
        await harness.start()
        await turn(3_600)
        harness.crash()
        harness.back_s = BACK_S
        await harness.start()
        for number in range(2):
            await harness.client(f"unlogged-{number}", expiry_s=0)
        will = WillRecord("a", b"will", 1, False, NO_PROPERTIES, 0, None)
        client = await harness.client("client", will=will)
        for _ in range(2):
            await harness.restart()
            await turn(1)
            await client.connect()
        await harness.restart()
        await turn(1)
        assert len(harness.published()) == 3
        assert not harness.fatal

    run(scenario())
