"""The anti-replay window against a set (M14; RFC 4303, 3.4.3)."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.shard.window import WINDOW_SIZE, AntiReplayWindow

near = st.integers(0, 40)
far = st.integers(0, 4 * WINDOW_SIZE)


@given(st.lists(st.one_of(near, far, st.builds(lambda n: n + WINDOW_SIZE - 20, near))))
def test_it_agrees_with_a_set_within_its_size(offsets: list[int]) -> None:
    """M14: the first copy is accepted, later ones are not; what is older than the window counts as seen."""
    window, seen, top = AntiReplayWindow(), set[int](), -1
    for offset in offsets:
        is_old = top - offset >= WINDOW_SIZE
        assert window.seen(offset) == (is_old or offset in seen)
        assert window.accept(offset) == (not is_old and offset not in seen)
        top = max(top, offset)
        if not is_old:
            seen.add(offset)
        assert window.seen(offset)
        window = AntiReplayWindow(window.top, window.bits)  # as it comes back from a checkpoint
        assert window.bits.bit_length() <= WINDOW_SIZE


@given(st.lists(st.integers(1, 3), max_size=200), st.integers(0, 300))
def test_two_routers_in_order_give_each_message_once(steps: list[int], lag: int) -> None:
    """M14, R8: each router emits in order, one behind the other: first copies come once, in order."""
    sent = [sum(steps[: n + 1]) for n in range(len(steps))]
    merged = sorted(
        [(n, offset) for n, offset in enumerate(sent)] + [(n + lag, offset) for n, offset in enumerate(sent)]
    )
    window = AntiReplayWindow()
    assert [offset for _, offset in merged if window.accept(offset)] == sent
