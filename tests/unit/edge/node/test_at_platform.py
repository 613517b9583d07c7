"""Envelopes that the platform has and whose recipients may not: no later message ends them (M14)."""

import asyncio
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from bundles.bundle import Bundle
from bundles.receipt import Receipt, Role
from edge.node.at_platform import AtPlatform, AtPlatformRow
from edge.node.node import MeshNode
from tests.unit.bundles.keys import identity
from tests.unit.edge.node.node_host import NOW_S, Join, NodeHost, certificates, eventually, gateway, send

LIFETIME_S = 160.0


async def to_platform(node: MeshNode, message_id: str) -> Bundle:
    """The platform takes the message for its recipient."""
    held = node.carrier.held(message_id)
    assert held is not None
    [bundle] = await node.load([held])
    await node.settle([gateway().receipt(message_id, Role.GATEWAY, 1)])
    return bundle


def test_a_message_that_the_platform_has_is_not_ended_by_a_later_one(tmp_path: Path) -> None:
    """M14: the later one comes to the recipient directly; the originator was restarted in between."""

    async def run() -> None:
        a, c = NodeHost("a", tmp_path), NodeHost("c", tmp_path)
        everybody = [*certificates("a", "c"), gateway().certificate]
        async with a.running(everybody) as one:
            first = await send(one, "@c", "first")
            at_platform = await to_platform(one, first)
        async with a.running(everybody) as one, c.running(everybody) as there:
            second = await send(one, "@c", "second")
            await Join(one, there).run(lambda: len(c.given) == 1)
            await there.take(at_platform)
            await eventually(lambda: len(c.given) == 2, "the recipient has both")
        assert [message_id for message_id, _ in c.given] == [second, first]

    asyncio.run(run())


def test_the_recipients_receipt_ends_what_the_platform_has(tmp_path: Path) -> None:
    """M14: it comes at a contact with the recipient. Another's receipt changes nothing, nor does one of the platform's
    for a message to a topic."""

    async def run() -> None:
        a, c = NodeHost("a", tmp_path), NodeHost("c", tmp_path)
        everybody = [*certificates("a", "c", "d"), gateway().certificate]

        async def mark(node: MeshNode, to: str = "@c") -> int:
            held = node.carrier.held(await send(node, to))
            assert held is not None
            return held.header.ended_below

        async with a.running(everybody) as one, c.running(everybody) as there:
            first = await send(one, "@c")
            at_platform = await to_platform(one, first)
            await to_platform(one, await send(one, "topic"))
            assert (await mark(one), await mark(one, "topic")) == (1, 4)
            await one.settle([identity("d", now_s=NOW_S).receipt(first, Role.RECIPIENT, 1)])
            assert await mark(one) == 1
            await there.take(at_platform)
            await Join(one, there).run(lambda: len(one.carrier) == 1)
            assert await mark(one) == 6
        async with a.running(everybody) as one:
            assert await mark(one) == 6, "and that is on disk"

    asyncio.run(run())


def test_a_message_that_the_platform_has_counts_until_its_lifetime_is_over(tmp_path: Path) -> None:
    """M14, M19."""

    async def run() -> None:
        a, now_s = NodeHost("a", tmp_path, lifetime_s=3_600), [0.0]
        a.running_s = lambda: now_s[0]
        async with a.running([*certificates("c"), gateway().certificate]) as one:
            await to_platform(one, await send(one, "@c"))
            now_s[0] = 3_700.0

            async def is_over() -> bool:
                held = one.carrier.held(await send(one, "@c"))
                assert held is not None
                return held.header.ended_below > 1

            async with asyncio.timeout(20):
                while not await is_over():
                    await asyncio.sleep(0.05)

    asyncio.run(run())


@given(st.lists(st.tuples(st.sampled_from("bc"), st.integers(0, 40), st.integers(0, 12)), max_size=60))
def test_the_lowest_sequence_is_never_above_one_that_may_still_come(steps: list[tuple[str, int, int]]) -> None:
    """M14, M19: whatever ends; few are kept, and none longer than a sixteenth of the lifetime beyond its end. What is
    stored says the same."""
    known, alive, now_s = AtPlatform(LIFETIME_S, exact=3), dict[int, tuple[str, float]](), 0.0
    stored: dict[int, AtPlatformRow | None] = {}
    for sequence, (recipient, ends, later_s) in enumerate(steps, 1):
        now_s += later_s
        stored |= known.expire(now_s)
        stored |= known.begin(f"m{sequence}", sequence, recipient, now_s)
        alive[sequence] = recipient, now_s + LIFETIME_S
        whose = Receipt(f"m{ends}", Role.RECIPIENT, "b", 1, b"")
        if ends in alive and known.is_ended_by(whose):
            assert alive.pop(ends)[0] == "b"
            stored |= known.end(whose.message_id)
        rows = [row for row in stored.values() if row is not None]
        again = AtPlatform(LIFETIME_S, exact=3)
        again.recover(sorted(rows, key=lambda row: row.until_s))
        for name in "bc":
            lowest = known.lowest(name)
            assert lowest == again.lowest(name)
            mine = [(one, until_s) for one, (to, until_s) in alive.items() if to == name]
            if expected := [one for one, until_s in mine if until_s > now_s]:
                assert lowest is not None
                assert lowest <= min(expected)
            elif lowest is not None:
                assert max(until_s for _, until_s in mine) > now_s - LIFETIME_S / 16
        assert len(rows) <= 3 + 2 * 17
    assert all(row is None for row in (stored | known.expire(now_s + 2 * LIFETIME_S)).values())
