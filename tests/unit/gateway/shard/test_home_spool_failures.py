"""A spool that fails: online clients go on, nothing acknowledged is lost, memory is bounded (Q1, G8, G9)."""

import contextlib
import sqlite3
from pathlib import Path

import pytest

from gateway.errors import SpoolError
from gateway.shard.messages import Message
from gateway.shard.spool import Spool
from gateway.shard.spool_batch import SpoolBatch
from gateway.shard.spool_records import Marker
from schemas.envelope import Instruction
from tests.unit.gateway.shard.home_harness import LEAD_S, HomeHarness, turn
from tests.unit.gateway.shard.virtual_time import run


def numbered(first: int, last: int) -> list[bytes]:
    return [b"%d" % n for n in range(first, last)]


async def publish(harness: HomeHarness, topic: str, payloads: list[bytes], qos: int) -> None:
    sender = next(client for client in harness.clients if client.name == "sender")
    for payload in payloads:
        sender.publish(topic, payload, qos)
        await turn(0.1)


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("crash", [False, True])
def test_a_full_disk_keeps_nobody_online_waiting_and_loses_nothing(tmp_path: Path, qos: int, crash: bool) -> None:
    """Q1, G9: what is offline waits in memory and on Kafka; once there is room, or after a crash, it is all there."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        await harness.client("sender")
        online, offline = await harness.client("online"), await harness.client("offline")
        for client in (online, offline):
            await client.subscribe("a/b")
        await turn(LEAD_S + 5)
        offline.lose()
        await publish(harness, "a/b", numbered(0, 10), qos)
        await turn(10)
        assert harness.spool_rows() == 10
        harness.spool.fill_disk()
        payloads = numbered(10, 50)
        await publish(harness, "a/b", [p * 500 for p in payloads], qos)
        await turn(20)
        assert online.payloads == [*numbered(0, 10), *(p * 500 for p in payloads)]
        assert "full" in harness.home.spool_fault
        assert harness.spool_rows() == 10
        assert harness.node.counts["spool_failed_write"] > 3
        if crash:
            harness.crash()
            await harness.start()
            for client in harness.clients:
                if client is not offline:
                    await client.connect()
        else:
            harness.spool.free_disk()
            await turn(10)
            assert harness.spool_rows() == 50
        assert not harness.home.spool_fault
        await offline.connect()
        await turn(5)
        assert list(dict.fromkeys(offline.payloads)) == [*numbered(0, 10), *(p * 500 for p in payloads)]
        assert qos == 1 or len(offline.payloads) == 50
        await turn(5)
        assert harness.relinquished() == harness.instructions()
        assert harness.spool_rows() == 0
        assert not harness.fatal

    run(scenario())


@pytest.mark.parametrize("route", [False, True], ids=["direct deliveries", "by route"])
def test_memory_is_bounded_while_the_spool_fails(tmp_path: Path, route: bool) -> None:
    """R8, Q1: what does not fit is not read from Kafka, and comes in order once there is room."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path, unspooled_messages=20, unspooled_bytes=1 << 20).start()
        await harness.client("sender")
        offline = await harness.client("offline")
        await offline.subscribe("a/b")
        await turn(LEAD_S + 5 if route else 0)
        offline.lose()
        harness.spool.fill_disk()
        payloads = [b"%03d" % n * 500 for n in range(200)]
        await publish(harness, "a/b", payloads, 1)
        await turn(60)
        assert harness.is_spool_full
        assert harness.node.counts["unspooled_full"] == 1
        session = offline.attached.session
        assert 20 <= session.queued < 120
        harness.spool.free_disk()
        await turn(30)
        assert not harness.is_spool_full
        assert harness.spool_rows() == 200
        await offline.connect()
        await turn(5)
        assert offline.payloads == payloads
        assert harness.relinquished() == harness.instructions()
        assert not harness.fatal

    run(scenario())


def test_what_clients_acknowledge_meanwhile_does_not_wait_for_the_spool(tmp_path: Path) -> None:
    """R4: a slow client's messages are relinquished when it has them, though their rows were never written."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path, unspooled_messages=20).start()
        sender, slow = await harness.client("sender"), await harness.client("slow")
        await slow.subscribe("a/b")
        await turn(LEAD_S + 5)
        harness.spool.fill_disk()
        for n in range(20):
            slow.mute = True
            for _ in range(10):
                sender.publish("a/b", b"x" * 5_000, 1)
            await turn(6)
            slow.mute = False
            slow.answer_all()
            await turn(6)
            assert len(slow.got) == 10 * (n + 1)
        assert harness.node.counts["spool_failed_write"] > 20
        assert not harness.node.counts["unspooled_full"]
        assert all(home.spool.waiting == (0, 0) for home in harness.home.shards.values())
        assert harness.relinquished() == harness.instructions()
        harness.spool.free_disk()
        await turn(10)
        assert harness.spool_rows() == 0
        await harness.restart()
        await slow.connect()
        await turn(5)
        assert len(slow.got) == 200
        assert harness.relinquished() == harness.instructions()
        assert not harness.fatal

    run(scenario())


def test_a_backlog_that_cannot_be_read_comes_once_it_can(tmp_path: Path) -> None:
    """G9: the client stays connected and gets what needs no spool later, in order."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        await harness.client("sender")
        offline = await harness.client("offline")
        await offline.subscribe("a/b")
        await turn(LEAD_S + 5)
        offline.lose()
        await publish(harness, "a/b", numbered(0, 10), 2)
        await turn(10)
        load, failing = Spool.load, [True]

        def fails(self: Spool, *arguments: object) -> object:
            if failing[0]:
                raise SpoolError("disk I/O error")
            return load(self, *arguments)  # type: ignore[arg-type]

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Spool, "load", fails)
            await offline.connect()
            await publish(harness, "a/b", numbered(10, 20), 2)
            await turn(20)
            assert offline.payloads == []
            assert harness.home.spool_fault == "disk I/O error"
            failing[0] = False
            await turn(10)
        assert offline.payloads == numbered(0, 20)
        assert not harness.home.spool_fault
        assert not harness.fatal

    run(scenario())


def test_an_orderly_stop_with_a_full_disk_says_so_and_loses_nothing(tmp_path: Path) -> None:
    """Q1: the last checkpoint fails; the next start reads more."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        await harness.client("sender")
        offline = await harness.client("offline")
        await offline.subscribe("a/b")
        await turn(LEAD_S + 5)
        offline.lose()
        harness.spool.fill_disk()
        await publish(harness, "a/b", [p * 900 for p in numbered(0, 30)], 2)
        await turn(8)
        with pytest.raises(SpoolError, match=r"\d\.sqlite cannot be written: .*full"):
            await harness.home.stop()
        harness.crash(stored=1_000)
        await harness.start()
        await offline.connect()
        await turn(5)
        assert offline.payloads == [p * 900 for p in numbered(0, 30)]

    run(scenario())


def test_a_spool_that_was_moved_away_loses_nothing_that_is_on_kafka(tmp_path: Path) -> None:
    """Q1, G8: the gateway reads from the beginning; what waits is not lost, and what QoS 2 exchanges have settled does
    not come again (docs/operators.md, "A broken spool", has the exceptions)."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        await harness.client("sender")
        online, offline = await harness.client("online"), await harness.client("offline")
        for client in (online, offline):
            await client.subscribe("a/b")
        await turn(LEAD_S + 5)
        await publish(harness, "a/b", [b"one", b"two"], 2)
        offline.lose()
        await publish(harness, "a/b", [b"three", b"four"], 2)
        await turn(10)
        assert harness.spool_rows() == 2
        await offline.connect()
        await turn(1)
        assert offline.payloads == [b"one", b"two", b"three", b"four"]
        offline.lose()
        await publish(harness, "a/b", [b"waits"], 2)
        await turn(10)
        harness.crash()
        for file in (tmp_path / "spool").glob("*"):
            file.unlink()
        await harness.start()
        for client in harness.clients:
            await client.connect()
        await turn(LEAD_S + 10)
        assert online.payloads == [b"one", b"two", b"three", b"four", b"waits"]
        assert offline.payloads == [b"one", b"two", b"three", b"four", b"waits"]
        await publish(harness, "a/b", [b"five"], 2)
        assert online.payloads[-1] == offline.payloads[-1] == b"five"
        assert not harness.fatal

    run(scenario())


def test_a_damaged_spool_is_refused_at_start(tmp_path: Path) -> None:
    """One sentence that names the file and what to do, not a failure when a client comes for its messages."""
    path = tmp_path / "spool.sqlite"
    spool = Spool(str(path))
    made = SpoolBatch()
    for mid in range(1, 400):
        message = Message(f"id-{mid}", "sender", "a/b", b"x" * 300, 1, False, None, b"\0", 0, mid, mid)
        made.messages.append((mid, message, [Instruction(0, mid, 0, 1, mid)]))
        made.rows.append((mid, mid, "s", 1, False, (), False))
    spool.commit(made, None, 0, 0)
    spool.close()
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    content = bytearray(path.read_bytes())
    content[5 * 4096 : 9 * 4096] = b"\xff" * 4 * 4096
    path.write_bytes(content)
    with pytest.raises(
        SpoolError, match=r"cannot open the spool .*spool\.sqlite: the file is damaged.*move the file away"
    ):
        Spool(str(path))


def test_a_spool_that_may_not_be_written_is_refused_at_start(tmp_path: Path) -> None:
    path = tmp_path / "spool.sqlite"
    Spool(str(path)).close()
    other = sqlite3.connect(path, isolation_level=None, timeout=0)
    other.execute("BEGIN IMMEDIATE")  # as a second gateway of the same name that is just writing
    with pytest.MonkeyPatch.context() as patch:
        connect = sqlite3.connect
        patch.setattr(sqlite3, "connect", lambda *a, **k: connect(*a, **(k | {"timeout": 0})))
        with pytest.raises(SpoolError, match=r"cannot open the spool .*locked"):
            Spool(str(path))
    other.close()
    with pytest.raises(SpoolError, match="cannot open the spool"):
        Spool(str(path / "below a file"))


def test_a_failed_commit_goes_into_the_next_one() -> None:
    """R4: one commit for both leaves what the two one after the other would have left."""

    def commit(spool: Spool, batch: SpoolBatch) -> None:
        spool.commit(batch, Marker(31, 4, batch.positions), 0, 0)

    def first() -> SpoolBatch:
        made = SpoolBatch(positions={"p": b"1"})
        for mid in (1, 2, 3):
            message = Message(f"id-{mid}", "sender", "a/b", b"payload", 1, False, None, b"\0", 0, mid, mid)
            made.messages.append((mid, message, [Instruction(0, mid, 0, 1, mid)]))
            made.rows += [(mid * 10 + n, mid, f"s{n}", 1, False, (), False) for n in (0, 1)]
        return made

    def second() -> SpoolBatch:
        message = first().messages[0][1]
        further = Instruction(0, 1, 1, 2, 1)
        return SpoolBatch(deleted_rows=[10, 11, 20], instructions=[(4, 1, message, further)], positions={"p": b"2"})

    apart, together = Spool(":memory:"), Spool(":memory:")
    commit(apart, first())
    commit(apart, second())
    merged = first().then(second())
    assert merged.positions == {}
    merged.positions = {"p": b"2"}
    commit(together, merged)
    found = [i for f in together.finished() for i in f.instructions]
    assert sorted(found) == sorted(i for f in apart.finished() for i in f.instructions)
    assert together.backlogs() == apart.backlogs()
    assert together.positions() == apart.positions()
    pruned = first().then(second())
    done, rows = pruned.take_done()
    assert rows == {10, 11, 20}
    assert [(message.offset, len(instructions), numbers) for message, instructions, numbers in done] == [(1, 2, [1, 4])]
    shrunk = Spool(":memory:")
    commit(shrunk, pruned)
    assert shrunk.backlogs() == apart.backlogs()
    assert shrunk.finished() == []
