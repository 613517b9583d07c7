"""What a node's file keeps over restarts, and what it refuses (M2, M8, M10, M14, M17)."""

import asyncio
import sqlite3
from pathlib import Path

import pytest

from bundles import sealing
from bundles.bundle import SEQUENCE_MAX, Bundle, sign
from bundles.receipt import Role
from bundles.seen import SeenLimits
from edge.client.errors import LifetimeNotAllowed, MessageTooLarge, StoreForeign, StoreFull, StoreInUse
from edge.node.errors import NotForUs
from edge.node.held_on_disk import StoredBundle
from edge.node.node import MeshNode
from edge.reconnect import FullJitter
from schemas.events import MessagePresenceEvent
from tests.unit.bundles.keys import header, identity, key, sealing_key
from tests.unit.edge.node.node_host import NOW_S, Join, NodeHost, certificates, eventually, gateway, send


def bundle_to(name: str, sequence: int = 1, plaintext: bytes | None = None, low_water: int = 1) -> Bundle:
    """From x, sealed to `name`."""
    made = header(sequence, "x", f"@{name}", low_water=low_water)
    payload = b"\x91\xc4\x02hi" if plaintext is None else plaintext
    return sign(made, sealing.seal(made, payload, sealing_key(name).public_key()), key("x"))


def held(node: MeshNode) -> list[tuple[str, int | None, int]]:
    found = [node.carrier.held(message_id) for message_id in node.carrier.ids()]
    return [(one.bundle.message_id, one.copies, one.bundle.hops) for one in found if one is not None]


def test_the_receipts_that_are_remembered_are_those_on_disk(tmp_path: Path) -> None:
    """M8, M19: who signs for messages that nobody knows crowds out those of others neither in memory nor on disk."""

    async def run() -> None:
        a = NodeHost("a", tmp_path, receipts=40)
        signer, ids = identity("b", now_s=NOW_S), [header(number, "x").message_id for number in range(1, 151)]

        def known(node: MeshNode) -> set[str]:
            return {one for one in ids if node.carrier.receipts.record(one) is not None}

        async with a.running([*certificates("b"), gateway().certificate]) as node:
            await node.settle([gateway().receipt(one, Role.GATEWAY, 1) for one in ids[:30]])
            for one in ids[30:]:
                await node.settle([signer.receipt(one, Role.RECIPIENT, 1)])
            before = known(node)
            assert before >= {*ids[:30], ids[-1]}
            assert len(before) <= 40
            assert all(node.carrier.receipts.get(one) for one in before)
        async with a.running() as node:
            assert known(node) == before
            assert len(node.carrier.receipts) == len(before)

    asyncio.run(run())


def test_bundles_budgets_and_receipts_survive_a_restart(tmp_path: Path) -> None:
    """M2, M8: with 8 copies, 4 are given to the first peer; the message and its sequence are not used again."""

    async def run() -> None:
        a, b = NodeHost("a", tmp_path), NodeHost("b", tmp_path)
        everybody = certificates("a", "b", "c")
        async with a.running(everybody) as one, b.running(everybody) as carrier:
            sent = [await send(one, "@c", f"text {number}") for number in range(3)]
            await Join(one, carrier).run(lambda: all(copies == 4 for _, copies, _ in held(one)))
            before, incarnation = held(one), one.carrier.incarnation
            receipt = gateway().receipt(sent[0], Role.GATEWAY, 1)
            one.take_certificate(gateway().certificate.der)
            await one.settle([receipt])
            await eventually(lambda: a.receipts == [sent[0]], "the application is told")
        async with a.running() as one, b.running() as carrier:
            assert held(one) == before[1:]
            assert one.carrier.incarnation == incarnation
            assert held(carrier) == [(message_id, 4, 1) for message_id in sent]
            assert one.carrier.receipts.get(sent[0]) == receipt
            found = one.carrier.held(sent[1])
            assert found is not None
            assert isinstance(found.bundle, StoredBundle)
            assert one.carrier.verify(found.bundle.loaded())
            assert [bundle.message_id for bundle in await one.load(one.sendable(9))] == sent[1:]
            assert (await send(one, "@c")) not in sent
            assert {one.name for one in carrier.known.of("c")} == {"c"}
        assert a.receipts == [sent[0]]

    asyncio.run(run())


def test_a_message_waits_for_its_key_in_its_place(tmp_path: Path) -> None:
    """M17: it is sealed when the certificate comes, after a restart too; its low-water mark covers all that wait."""

    async def run() -> None:
        a = NodeHost("a", tmp_path)
        async with a.running() as one:
            sent = [await send(one, to, "waits") for to in ("@c", "@c", "some/topic")]
            assert not len(one.carrier)
            assert one.status()["waiting_for_keys"] == 3
        async with a.running() as one:
            later = await send(one, "@c", "later")
            one.take_certificate(certificates("c")[0].der)
            await eventually(lambda: len(one.carrier) == 3, "the envelopes are sealed")
            one.take_certificate(gateway().certificate.der)
            await eventually(lambda: len(one.carrier) == 4, "the message is sealed")
        async with a.running() as one:
            assert one.status()["waiting_for_keys"] == 0
            bundles = {bundle.message_id: bundle for bundle in await one.load(one.sendable(9))}
            assert set(bundles) == {*sent, later}
            marks = [(bundles[i].header.sequence, bundles[i].header.low_water) for i in (*sent, later)]
            assert marks == [(1, 1), (2, 1), (3, 3), (4, 1)]
            content = identity("c", now_s=NOW_S).unseal(bundles[later])
            assert b"later" in content

    asyncio.run(run())


def test_the_low_water_mark_rises_with_what_has_ended(tmp_path: Path) -> None:
    """M14: it is that of all own messages to the same recipient."""

    async def run() -> None:
        a = NodeHost("a", tmp_path)
        async with a.running([*certificates("c", "d"), gateway().certificate]) as one:
            sent = [await send(one, to) for to in ("@c", "@d", "@c")]
            await one.settle([gateway().receipt(sent[0], Role.GATEWAY, 1)])
            newest = [one.carrier.held(await send(one, to)) for to in ("@c", "@d", "t")]
            assert [one.bundle.header.low_water for one in newest if one] == [3, 2, 6]

    asyncio.run(run())


def test_what_is_not_accepted_is_refused_with_the_reason(tmp_path: Path) -> None:
    """M2: before acceptance, and in bytes and in number."""

    async def run() -> None:
        a = NodeHost("a", tmp_path, stored_bundles=3, bundle_bytes=4_096, lifetime_s=100)
        async with a.running(certificates("c")) as one:
            with pytest.raises(MessageTooLarge, match="4,096 are allowed"):
                await send(one, "@c", "x" * 5_000, 100)
            for lifetime_s in (0, 101):
                with pytest.raises(LifetimeNotAllowed):
                    await send(one, "@c", "text", lifetime_s)
            results = await asyncio.gather(
                *(send(one, to, "text", 100) for to in ("@c", "@unknown", "@c", "@c", "@unknown")),
                return_exceptions=True,
            )
            assert [isinstance(one, StoreFull) for one in results] == [False, False, False, True, True]
            assert "store is full" in str(results[3])
        async with a.running() as one:
            assert len(one.carrier) == 2
            assert one.status()["waiting_for_keys"] == 1
            with pytest.raises(StoreFull):
                await send(one, "@c", "text", 100)

    asyncio.run(run())


def test_each_message_once_from_the_uplink_too(tmp_path: Path) -> None:
    """M14: a repetition gets a receipt and nothing else, after a restart too; so does what is below the mark."""

    async def run() -> None:
        c = NodeHost("c", tmp_path)
        async with c.running(certificates("x")) as node:
            first = await node.take(bundle_to("c", 5))
            assert (first.signer, first.role, first.message_id) == ("c", Role.RECIPIENT, bundle_to("c", 5).message_id)
            await node.take(bundle_to("c", 9, low_water=8))
            with pytest.raises(NotForUs):
                await node.take(bundle_to("d"))
        async with c.running() as node:
            for again in (bundle_to("c", 5), bundle_to("c", 9), bundle_to("c", 7)):
                assert (await node.take(again)).message_id == again.message_id
            await node.take(bundle_to("c", 8))
            await eventually(lambda: len(c.given) == 3, "all are given")
        assert [message_id for message_id, _ in c.given] == [bundle_to("c", n).message_id for n in (5, 9, 8)]

    asyncio.run(run())


def test_an_agent_with_many_incarnations_crowds_out_nobody(tmp_path: Path) -> None:
    """M14: on disk too, and after a restart."""

    def made(name: str, incarnation: int) -> Bundle:
        head = header(1, name, "@c", incarnation=incarnation)
        return sign(head, sealing.seal(head, b"\x91\xc4\x02hi", sealing_key("c").public_key()), key(name))

    async def run() -> None:
        c = NodeHost("c", tmp_path)
        most = SeenLimits().of_originator
        bundles = [made("y", 1), *(made("x", incarnation) for incarnation in range(1, most + 3))]
        for _ in range(2):
            async with c.running(certificates("x", "y")) as node:
                await asyncio.gather(*map(node.take, bundles))
                sources = [one.source for one in await node.on_store(lambda store: store.recover().seen)]
                assert sources == [("y", 1), *(("x", incarnation) for incarnation in range(3, most + 3))]
                await eventually(lambda: len(c.given) == most + 3, "each message is given once")
            bundles = bundles[:1] + bundles[3:]  # what is remembered

    asyncio.run(run())


def test_numbers_of_a_hostile_originator_do_not_end_the_node(tmp_path: Path) -> None:
    """All as high as the format allows: what is remembered of them fits on disk."""

    async def run() -> None:
        c = NodeHost("c", tmp_path)
        most = {"incarnation": 2**64 - 1, "created_ms": 2**64 - 1, "low_water": SEQUENCE_MAX}
        head = header(SEQUENCE_MAX, "x", "@c", **most)
        highest = sign(head, sealing.seal(head, b"\x91\xc4\x02hi", sealing_key("c").public_key()), key("x"))
        for _ in range(2):
            async with c.running(certificates("x")) as node:
                await node.take(highest)
                await eventually(lambda: len(c.given) == 1, "it is given")

    asyncio.run(run())


def test_what_cannot_be_read_is_settled(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """M17: it does not come for ever, and the log says why the application does not get it."""

    async def run() -> None:
        c = NodeHost("c", tmp_path)
        async with c.running(certificates("x")) as node:
            malformed, foreign = bundle_to("c", 1, b"no content"), header(2, "x", "@c")
            for bundle in (malformed, sign(foreign, b"sealed to nobody" * 9, key("x"))):
                assert (await node.take(bundle)).message_id == bundle.message_id
            assert node.status()["unreadable"] == 2
            await node.take(bundle_to("c", 3))
            await eventually(lambda: len(c.given) == 1, "the readable one")

    asyncio.run(run())
    assert caplog.text.count("is settled, but cannot be read") == 2


def test_an_application_that_takes_nothing_fills_only_the_inbox(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """M2: what does not fit stays with its carrier; what is in the inbox is tried again, in order, after a restart
    too."""
    monkeypatch.setattr("edge.node.parts.FullJitter", lambda *_: FullJitter(0.0, 0.0))

    async def run() -> None:
        c = NodeHost("c", tmp_path, inbox_messages=2)
        c.fails = 1_000_000
        async with c.running(certificates("x")) as node:
            for sequence in (1, 2):
                await node.take(bundle_to("c", sequence))
            with pytest.raises(StoreFull):
                await node.take(bundle_to("c", 3))
        assert not c.given
        c.fails = 3
        async with c.running() as node:
            await eventually(lambda: len(c.given) == 2, "both are given")
            await node.take(bundle_to("c", 3))
            await eventually(lambda: len(c.given) == 3, "the third one too")
        assert [message_id for message_id, _ in c.given] == [bundle_to("c", n).message_id for n in (1, 2, 3)]

    asyncio.run(run())


@pytest.mark.parametrize(
    ("wall_s", "aged_s"),
    [(50, 50), (-5_000, 0), (50_000_000, 600)],
    ids=["right", "back", "ahead"],
)
def test_the_clock_may_be_wrong_while_nothing_runs(tmp_path: Path, wall_s: int, aged_s: int) -> None:
    """M2: set back, no time has passed; set forward, at most `down_most_s`. While it runs, the clock has no effect."""

    async def run() -> None:
        a = NodeHost("a", tmp_path)
        a.down_most_s = 600.0
        running, wall = 1_000.0, NOW_S
        a.running_s, a.wall_s = (lambda: running), (lambda: wall)
        async with a.running(certificates("c")) as one:
            sent = await send(one, "@c", lifetime_s=1_000)
            wall += 7_000_000
            running += 100
            await asyncio.sleep(0)
            assert one.carrier.held(sent).age_s(one.now_s) == 100  # type: ignore[union-attr]
            wall = NOW_S
            one.pending.append(report("1"))
        running, wall = 5.0, NOW_S + wall_s
        async with a.running() as one:
            assert one.carrier.held(sent).age_s(one.now_s) == 100 + aged_s  # type: ignore[union-attr]
            running += 900 - aged_s
            await eventually(lambda: a.failed == [(sent, "its lifetime has passed")], "it expires")
            assert not len(one.carrier)

    asyncio.run(run())


def report(message_id: str) -> MessagePresenceEvent:
    return MessagePresenceEvent(id=message_id, event="delivered", agent="a", at_us=1)


def test_reports_wait_on_disk_until_they_are_published(tmp_path: Path) -> None:
    """M10."""

    async def run() -> None:
        a = NodeHost("a", tmp_path)
        async with a.running() as one:
            made = [one.pending.append(report(str(number))) for number in range(3)]
            await one.durable()
            one.pending.published([made[0].number])
        async with a.running() as one:
            assert one.pending.batch(9) == made[1:]

    asyncio.run(run())


def test_a_message_that_the_platform_refuses_ends_at_its_originator(tmp_path: Path) -> None:
    """M2, M8: with the reason; one that is carried for another stays."""

    async def run() -> None:
        a = NodeHost("a", tmp_path)
        async with a.running(certificates("c", "x")) as one:
            sent = await send(one, "@c")
            one.carrier.add(bundle_to("c"), 1, one.now_s)
            assert await one.refuse(sent, "not authorised")
            assert not await one.refuse(bundle_to("c").message_id, "not authorised")
            await eventually(lambda: a.failed == [(sent, "not authorised")], "the application is told")
            assert one.carrier.ids() == [bundle_to("c").message_id]
        async with a.running() as one:
            assert sent not in one.carrier

    asyncio.run(run())


def test_a_message_to_ourselves_arrives(tmp_path: Path) -> None:
    async def run() -> None:
        a = NodeHost("a", tmp_path)
        async with a.running() as one:
            sent = await send(one, "@a")
            await eventually(lambda: a.receipts == [sent], "the receipt")
            assert [message_id for message_id, _ in a.given] == [sent]
            assert not len(one.carrier)

    asyncio.run(run())


def test_a_file_belongs_to_one_agent_and_one_process(tmp_path: Path) -> None:
    async def run() -> None:
        a, d = NodeHost("a", tmp_path), NodeHost("d", tmp_path)
        async with a.running():
            with pytest.raises(StoreInUse):
                async with a.running():
                    pass
        d.directory = a.directory
        with pytest.raises(StoreForeign, match="of the agent 'a', not of 'd'"):
            async with d.running():
                pass
        (a.directory / "mesh").unlink()
        sqlite3.connect(a.directory / "mesh").execute("CREATE TABLE other (x)").connection.close()
        with pytest.raises(StoreForeign):
            async with a.running():
                pass

    asyncio.run(run())


def test_many_submits_share_a_commit(tmp_path: Path) -> None:
    """M2: group commit."""

    async def run() -> None:
        a = NodeHost("a", tmp_path)
        async with a.running(certificates("c")) as one:
            await one.durable()
            assert a.store is not None
            before = a.store.commits
            ids = await asyncio.gather(*(send(one, "@c") for _ in range(100)))
            assert a.store.commits == before + 1
            assert set(one.carrier.ids()) == set(ids)

    asyncio.run(run())


def test_a_receipt_that_overtakes_its_bundle_leaves_nothing_behind(tmp_path: Path) -> None:
    """M8: memory and disk agree, also if somebody has signed who may not say this."""

    async def run() -> None:
        b = NodeHost("b", tmp_path)
        async with b.running([*certificates("x"), gateway().certificate]) as node:
            forged = identity("x", now_s=NOW_S).receipt(bundle_to("c").message_id, Role.RECIPIENT, 1)
            await node.settle([forged])
            node.carrier.add(bundle_to("c"), 1, node.now_s)
            assert bundle_to("c").message_id in node.carrier
            await node.settle([gateway().receipt(bundle_to("c").message_id, Role.GATEWAY, 1)])
            assert not len(node.carrier)

    asyncio.run(run())
