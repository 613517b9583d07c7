"""A gateway that starts without its disk serves the same sessions: the spool's file is only a view (G9, Q1, G8)."""

import contextlib
import sqlite3
from pathlib import Path

import msgspec
import pytest

from gateway.shard.spool import Spool
from tests.unit.gateway.shard.home_harness import LEAD_S, SHARDS, HomeHarness, turn
from tests.unit.gateway.shard.test_earlier_spool import SCHEMA as EARLIER_SCHEMA
from tests.unit.gateway.shard.virtual_time import run


@pytest.mark.parametrize("disk", ["kept", "lost", "old"])
def test_it_reads_what_the_file_lacks_and_nothing_of_egress_again(tmp_path: Path, disk: str) -> None:
    """Queues that have long left memory, in order; a message that is retained; packet ids in use at QoS 2."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender = await harness.client("sender")
        slow, away = await harness.client("slow", receive_maximum=3), await harness.client("away")
        for client in (slow, away):
            await client.subscribe("a/b")
        await turn(LEAD_S + 5)
        slow.mute = True
        away.lose()
        for n in range(10):
            sender.publish("a/b", b"%d" % n, 2, retain=n == 9)
        await turn(20)
        harness.crash()
        harness.change_disk("kept")
        await harness.start()
        for client in (sender, slow):
            await client.connect()
        for n in range(10, 20):
            sender.publish("a/b", b"%d" % n, 2)
        await turn(20)
        assert harness.spool_rows() == 40
        harness.crash()
        harness.change_disk(disk)
        await harness.start()
        assert harness.home.recovered.get("egress", 0) == 0
        assert harness.spool_rows() == 40
        for client in (sender, slow, away):
            await client.connect()
        slow.mute = False
        slow.answer_all()
        late = await harness.client("late")
        await late.subscribe("a/#")
        await turn(5)
        assert slow.payloads == away.payloads == [b"%d" % n for n in range(20)]
        assert late.payloads == [b"9"]
        assert harness.relinquished() == harness.instructions()
        await turn(5)
        assert harness.spool_rows() == 0
        assert not harness.fatal

    run(scenario())


def test_an_old_file_is_made_again(tmp_path: Path) -> None:
    """Kafka may have dropped tombstones that the file has not read: rows would come to life again."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender, away = await harness.client("sender"), await harness.client("away")
        await away.subscribe("a/b")
        await turn(LEAD_S + 5)
        away.lose()
        sender.publish("a/b", b"one", 1)
        await turn(10)
        harness.crash()
        harness.change_disk("kept")
        await harness.start()
        await sender.connect()
        await away.connect()
        await turn(10)
        away.lose()
        assert away.payloads == [b"one"]
        harness.crash()
        harness.change_disk("old")
        clock = type(harness).clock
        harness.clock = lambda: clock(harness) + 13 * 3600  # type: ignore[method-assign]
        for shard in range(SHARDS):
            harness.broker.compact(harness.topics.spool, shard)
        await harness.start()
        assert harness.spool_rows() == 0
        await away.connect()
        await turn(2)
        assert away.payloads == [b"one"]

    run(scenario())


def test_who_is_finished_with_a_message_is_written_once(tmp_path: Path) -> None:
    """A message with many recipients and a slow one; after a crash only the slow one gets it again."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender = await harness.client("sender")
        clients = [await harness.client(f"client-with-a-long-name-{n}") for n in range(200)]
        for client in clients:
            await client.subscribe("a/b")
        await turn(LEAD_S + 5)
        slow = [next(c for c in clients if harness.shard_of(c.name).number == shard) for shard in range(SHARDS)]
        for client in slow:
            client.mute = True
        sender.publish("a/b", b"x", 1)
        await turn(1)
        before = changelog_bytes(harness)
        await turn(2)
        assert changelog_bytes(harness) - before < 2_000, "eight checkpoints"
        harness.crash()
        harness.change_disk("lost")
        await harness.start()
        for client in (sender, *clients):
            client.mute = False
            await client.connect()
        await turn(5)
        assert [len(client.payloads) for client in clients if client not in slow] == [1] * (200 - SHARDS)
        assert [client.payloads for client in slow] == [[b"x", b"x"]] * SHARDS
        await turn(5)
        files = [Spool(str(harness.spool_directory / f"{shard}.sqlite")) for shard in range(SHARDS)]
        assert [file.finished_clients() for file in files] == [{}] * SHARDS
        assert harness.relinquished() == harness.instructions()

    run(scenario())


def test_the_file_of_an_earlier_version_is_taken_up_once(tmp_path: Path) -> None:
    """Sessions go on, with what waited for them."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender, away = await harness.client("sender"), await harness.client("away")
        await away.subscribe("a/b")
        await turn(LEAD_S + 5)
        away.lose()
        for n in range(5):
            sender.publish("a/b", b"%d" % n, 2)
        await turn(10)
        harness.crash()
        make_earlier_file(harness, tmp_path / "earlier.sqlite")
        harness.change_disk("lost")
        for shard in range(SHARDS):
            harness.broker.partitions[harness.topics.spool, shard].clear()
        harness.earlier = tmp_path / "earlier.sqlite"
        await harness.start()
        assert harness.home.recovered.get("egress", 0) == 0
        assert not harness.earlier.exists()
        await away.connect()
        await turn(2)
        assert away.payloads == [b"%d" % n for n in range(5)]
        assert harness.relinquished() == harness.instructions()
        await harness.restart()
        await away.connect()
        await turn(2)
        assert len(away.payloads) == 5
        assert not harness.fatal

    run(scenario())


def changelog_bytes(harness: HomeHarness) -> int:
    records = [r for shard in range(SHARDS) for r in harness.broker.partitions[harness.topics.spool, shard]]
    return sum(len(record.key() or b"") + len(record.value() or b"") for record in records)


def make_earlier_file(harness: HomeHarness, path: Path) -> None:
    """The single file of earlier versions, with what is in the files of the shards."""
    encode = msgspec.msgpack.encode
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.executescript(EARLIER_SCHEMA)
        for shard in range(SHARDS):
            spool = Spool(str(harness.spool_directory / f"{shard}.sqlite"))
            for name, state in spool.positions().items():
                named = f"shard/{shard}" if name == "shard" else name
                database.execute("INSERT OR REPLACE INTO positions VALUES (?, ?)", (named, state))
            for session in spool.backlogs():
                for spooled in spool.load(session, 0, 1_000):
                    number = spooled.row * SHARDS + shard
                    message, instructions = encode(spooled.message), encode(spooled.instructions)
                    delivery = encode((spooled.qos, spooled.retain, spooled.subscription_ids, spooled.dup))
                    row = (number, shard, None, message, instructions, 1)
                    database.execute("INSERT INTO messages VALUES (?, ?, ?, ?, ?, ?)", row)
                    database.execute("INSERT INTO queue VALUES (?, ?, ?, ?)", (number, number, session, delivery))
            spool.close()
