"""What a shard's position says about fences: enough for all messages that a restart may still meet (Q7)."""

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.shard.shard import Shard
from gateway.shard.window import WINDOW_SIZE
from schemas.envelope import ROUTED

STEP = WINDOW_SIZE // 4
"""Between two offsets in these tests, so that windows matter."""

steps = st.lists(
    st.tuples(
        st.sampled_from(("fence", "instruction", "inbound", "begin", "passed", "end", "restart")),
        st.integers(0, 1),
        st.integers(1, 5),
    ),
    max_size=40,
)


@settings(deadline=None)
@given(steps)
def test_a_restart_drops_the_same(log: list[tuple[str, int, int]]) -> None:
    """Whatever was read, passed and forgotten before: instructions that are no copies, what the reader has not passed,
    and publishes that the session log does not know."""
    fenced: list[tuple[int, int, int]] = []
    shard, offset = Shard(0), 0
    for kind, sender, epoch in log:
        offset += STEP
        match kind:
            case "fence":
                fenced.append((offset, sender, epoch))
                shard.fences.read_fence(0, offset, [(sender, epoch)])
            case "instruction":
                shard.order.copies.accept(ROUTED, 0, offset)
            case "inbound":
                shard.inbound_from = {0: offset}
            case "begin" if shard.order.passed_to is None:
                shard.order.begin({0: offset}, {0: offset})
            case "passed" if shard.order.passed_to is not None:
                shard.order.passed(0, offset)
            case "end":
                shard.order.end()
            case "restart":
                shard = restarted(shard)
    lowest = min(
        shard.inbound_from.get(0, 0),
        max(0, shard.order.copies.top(0) + 1 - WINDOW_SIZE),
        (shard.order.passed_to or {0: offset})[0],
    )
    after = restarted(shard)
    for at in range(lowest, offset + 2 * STEP, STEP // 2):
        for sender in (0, 1):
            expected = max((e for o, s, e in fenced if s == sender and o < at), default=0)
            assert after.fences.epoch_at(0, at, sender) == expected
    for known in after.fences.seen({0: lowest}).get(0, {}).values():
        assert len([fence for fence in known if fence.offset < lowest]) <= 1, "what is stored does not grow"


def restarted(shard: Shard) -> Shard:
    """As checkpoint and recovery do it: the other positions have names of their own."""
    raw, after = shard.snapshot(), Shard(0)
    after.restore(raw, {}, {})
    after.inbound_from = dict(shard.inbound_from)
    if shard.order.passed_to is not None:
        after.order.begin(shard.order.passed_to, shard.order.direct_from)
    return after


def test_a_shard_without_fences_says_nothing_of_them() -> None:
    """Where one gateway has all shards nothing changes."""
    assert b"fences" not in Shard(0).snapshot()
