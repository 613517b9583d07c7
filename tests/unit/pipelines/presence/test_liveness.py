"""Gateways are judged by heartbeats and ticks on the same partition (R12, G2)."""

from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.presence.liveness import Liveness, Sign
from schemas.identity import partition_of
from schemas.states import GatewayState
from tests.draw import examples

PARTITIONS = 2
HERE = partition_of("g", PARTITIONS)
TIMEOUT_MS, BEAT_MS = 15_000, 5_000


def judged(
    liveness: Liveness, *signs: Sign, tick_ms: int | None = None, partition: int = HERE
) -> list[tuple[int, bool]]:
    ticks = {} if tick_ms is None else {partition: [tick_ms]}
    return [(state.boot, state.alive) for state in liveness.judge(signs, ticks, PARTITIONS)]


def witnessed(since_ms: int, *published: GatewayState) -> Liveness:
    """As after a while of ticks, the last at `since_ms` on both partitions."""
    liveness = Liveness(TIMEOUT_MS, BEAT_MS, published)
    liveness.judge([], {partition: [since_ms] for partition in range(PARTITIONS)}, PARTITIONS)
    return liveness


def void_before(liveness: Liveness) -> dict[str, int]:
    return {name: gateway.void_before for name, gateway in liveness.gateways.items()}


def test_a_gateway_is_gone_once_a_tick_stands_long_behind_its_last_heartbeat() -> None:
    """R12: reported once, and once more when it comes back."""
    liveness = witnessed(900)
    assert judged(liveness, Sign("g", 1, 1000, False)) == [(1, True)]
    assert judged(liveness, tick_ms=8_000) == []
    assert judged(liveness, tick_ms=14_000) == []
    assert judged(liveness, tick_ms=16_000) == []
    assert judged(liveness, tick_ms=99_000, partition=1 - HERE) == [], "a tick elsewhere says nothing of it"
    assert judged(liveness, tick_ms=16_001) == [(1, False)]
    assert void_before(liveness) == {"g": 2}
    assert judged(liveness, tick_ms=21_000) == []
    assert judged(liveness, Sign("g", 1, 31_000, False), tick_ms=31_500) == [(1, True)]
    assert void_before(liveness) == {"g": 1}


def test_a_new_process_voids_what_the_one_before_had() -> None:
    """R12: at its first heartbeat; one of the earlier process that comes late changes nothing."""
    liveness = witnessed(0)
    judged(liveness, Sign("g", 1, 1000, False))
    assert judged(liveness, Sign("g", 9, 2000, False)) == [(9, True)]
    assert void_before(liveness) == {"g": 9}
    assert judged(liveness, Sign("g", 1, 2500, False)) == []


def test_a_gateway_that_says_goodbye_is_gone_at_once() -> None:
    liveness = witnessed(0)
    assert judged(liveness, Sign("g", 1, 1000, True)) == [(1, False)]
    assert judged(liveness, Sign("g", 2, 1500, False)) == [(2, True)]


def test_a_ledger_that_was_away_judges_as_one_that_was_there() -> None:
    """R12: an hour of heartbeats and then its own tick; after a restart a gateway's time runs from the next tick."""
    published = [GatewayState(gateway="g", alive=True, boot=1, at_ms=1)]
    liveness = Liveness(TIMEOUT_MS, BEAT_MS, published)
    assert judged(liveness, Sign("g", 1, 3_600_000, False), tick_ms=3_601_000) == []
    liveness = Liveness(TIMEOUT_MS, BEAT_MS, published)
    assert judged(liveness, tick_ms=3_600_000) == []
    assert judged(liveness, tick_ms=3_605_000) == []
    assert judged(liveness, tick_ms=3_610_000) == []
    assert judged(liveness, tick_ms=3_615_000) == []
    assert judged(liveness, tick_ms=3_615_001) == [(1, False)]


def test_what_is_replayed_changes_no_verdict() -> None:
    """R12: heartbeats and ticks from before a gateway was found gone, or back."""
    gone = Liveness(TIMEOUT_MS, BEAT_MS, [GatewayState(gateway="g", alive=False, boot=1, at_ms=30_000)])
    assert judged(gone, Sign("g", 1, 5_000, False), tick_ms=6_000) == []
    assert judged(gone, Sign("g", 1, 31_000, False)) == [(1, True)]
    back = witnessed(50_000, GatewayState(gateway="g", alive=True, boot=1, at_ms=90_000))
    assert judged(back, Sign("g", 1, 5_000, False), tick_ms=60_000) == []
    assert judged(back, tick_ms=91_000) == []
    for tick_ms in (96_000, 101_000, 106_000):
        assert judged(back, tick_ms=tick_ms) == []
    assert judged(back, tick_ms=106_001) == [(1, False)]


def test_where_ticks_are_missing_nobody_is_found_gone() -> None:
    """R12: the broker was away for a minute, and the ledger's tick is the first that it takes."""
    liveness = witnessed(0)
    assert judged(liveness, Sign("g", 1, 1_000, False), tick_ms=5_000) == [(1, True)]
    assert judged(liveness, tick_ms=65_000) == []
    assert judged(liveness, tick_ms=70_000) == []
    assert judged(liveness, Sign("g", 1, 71_000, False), tick_ms=75_000) == []
    for tick_ms in range(80_000, 86_001, 3_000):
        assert judged(liveness, tick_ms=tick_ms) == []
    assert judged(liveness, tick_ms=86_001) == [(1, False)], "silent while there were ticks"


def test_no_outage_however_long_voids_a_gateway_that_speaks() -> None:
    """R12: a heartbeat of every beat, and the broker away for anything between nothing and ten beats; when it is back
    the ledger's tick comes first, and the gateway's heartbeat almost a timeout later."""
    for away_ms in range(0, 50_000, 250):
        for offset in range(0, BEAT_MS, 250):
            liveness, begins = witnessed(0), 20_000
            ends = begins + away_ms
            ticks = [at if at < begins else max(at, ends) for at in range(0, 120_000, BEAT_MS)]
            beats = [*range(offset, begins, BEAT_MS), *range(ends + TIMEOUT_MS - 1, 150_000, BEAT_MS)]
            if away_ms < BEAT_MS:  # it has missed no beat
                beats = [at if at < begins else max(at, ends) for at in range(offset, 150_000, BEAT_MS)]
            for at, is_beat in sorted([(at, False) for at in ticks] + [(at, True) for at in beats]):
                found = judged(liveness, Sign("g", 1, at, False)) if is_beat else judged(liveness, tick_ms=at)
                assert found in ([], [(1, True)]), (away_ms, offset, at)


def test_a_run_that_repeats_a_batch_adopts_what_the_first_one_found() -> None:
    """It does not know when the last heartbeats came."""
    first = witnessed(900)
    assert judged(first, Sign("g", 1, 1000, False)) == [(1, True)]
    published = dict(first.gateways)
    found = first.judge([], {HERE: [8_000, 14_000, 20_000]}, PARTITIONS)
    assert [(state.alive, state.at_ms) for state in found] == [(False, 20_000)]
    second = Liveness(TIMEOUT_MS, BEAT_MS, published.values())
    assert second.judge([], {HERE: [8_000, 14_000, 20_000]}, PARTITIONS) == []
    second.adopt(found)
    assert second.gateways == first.gateways
    assert judged(second, Sign("g", 1, 21_000, False)) == [(1, True)]


@st.composite
def outages(draw: st.DrawFn) -> tuple[list[tuple[int, str]], int, int]:
    """Heartbeats and ticks, each a tenth of a beat late at most, and when they were appended: none while the broker is
    away, then those that waited, ticks first; `dies` is when the gateway stops to say anything, or beyond the end."""
    begins, lasts = draw(st.integers(50_000, 60_000)), draw(st.integers(0, 120_000))
    ends, dies = begins + lasts, draw(st.just(10**9) | st.integers(0, 200_000))
    offset = draw(st.integers(0, BEAT_MS))
    late = st.integers(0, BEAT_MS // 10)
    appended = []
    for number in range(300_000 // BEAT_MS):
        for kind, at in (("tick", number * BEAT_MS), ("beat", number * BEAT_MS + offset)):
            at += draw(late)
            if kind == "beat" and at >= dies:
                continue
            comes_back = ends + (0 if kind == "tick" else draw(st.integers(0, BEAT_MS)))
            appended.append((comes_back if begins <= at < comes_back else at, kind))
    return sorted(appended, key=lambda one: (one[0], one[1] == "beat")), dies, ends


@settings(max_examples=examples(60))
@given(outage=outages(), data=st.data())
def test_whoever_speaks_is_never_found_gone_and_whoever_is_silent_is(
    outage: tuple[list[tuple[int, str]], int, int], data: st.DataObject
) -> None:
    """R12, G2: over outages of any length, in batches of any size; the verdict does not hang on the batches."""
    appended, dies, ends = outage
    liveness, found, left = Liveness(TIMEOUT_MS, BEAT_MS), list[GatewayState](), appended
    size = data.draw(st.integers(1, 40))
    while left:
        batch, left = left[:size], left[size:]
        beats = [at for at, kind in batch if kind == "beat"]
        signs = [Sign("g", 1, beats[-1], False)] if beats else []
        found += liveness.judge(signs, {HERE: [at for at, kind in batch if kind == "tick"]}, PARTITIONS)
    gone = [state.at_ms for state in found if not state.alive]
    if dies == 10**9:
        assert gone == []
    elif any(kind == "beat" for _, kind in appended):
        (gone_ms,) = gone
        latest_ms = max(dies, ends if dies < ends + TIMEOUT_MS else dies) + TIMEOUT_MS + (size + 3) * BEAT_MS
        assert dies < gone_ms <= latest_ms
