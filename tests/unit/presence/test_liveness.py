"""Gateways are judged by heartbeats and ticks on the same partition (R12, G2)."""

from pipelines.liveness import Liveness, Sign
from schemas.identity import partition_of
from schemas.states import GatewayState

PARTITIONS = 2
HERE = partition_of("g", PARTITIONS)


def judged(
    liveness: Liveness, *signs: Sign, tick_ms: int | None = None, partition: int = HERE
) -> list[tuple[int, bool]]:
    ticks = {} if tick_ms is None else {partition: tick_ms}
    return [(state.boot, state.alive) for state in liveness.judge(signs, ticks, PARTITIONS)]


def test_a_gateway_is_gone_once_a_tick_stands_long_behind_its_last_heartbeat() -> None:
    """R12: told once, and once more when it is heard again."""
    liveness = Liveness(15_000)
    assert judged(liveness, Sign("g", 1, 1000, False)) == [(1, True)]
    assert judged(liveness, tick_ms=16_000) == []
    assert judged(liveness, tick_ms=99_000, partition=1 - HERE) == [], "a tick elsewhere says nothing of it"
    assert judged(liveness, tick_ms=16_001) == [(1, False)]
    assert liveness.void_before == {"g": 2}
    assert judged(liveness, tick_ms=30_000) == []
    assert judged(liveness, Sign("g", 1, 31_000, False), tick_ms=31_500) == [(1, True)]
    assert liveness.void_before == {"g": 1}


def test_a_new_process_voids_what_the_one_before_had() -> None:
    """R12: at its first heartbeat; one of the earlier process that comes late changes nothing."""
    liveness = Liveness(15_000)
    judged(liveness, Sign("g", 1, 1000, False))
    assert judged(liveness, Sign("g", 9, 2000, False)) == [(9, True)]
    assert liveness.void_before == {"g": 9}
    assert judged(liveness, Sign("g", 1, 2500, False)) == []


def test_a_gateway_that_says_goodbye_is_gone_at_once() -> None:
    liveness = Liveness(15_000)
    assert judged(liveness, Sign("g", 1, 1000, True)) == [(1, False)]
    assert judged(liveness, Sign("g", 2, 1500, False)) == [(2, True)]


def test_a_ledger_that_was_away_judges_as_one_that_was_there() -> None:
    """R12: an hour of heartbeats and then its own tick; after a restart a gateway's time runs from the next tick."""
    told = [GatewayState(gateway="g", alive=True, boot=1, at_ms=1)]
    assert judged(Liveness(15_000, told), Sign("g", 1, 3_600_000, False), tick_ms=3_601_000) == []
    liveness = Liveness(15_000, told)
    assert judged(liveness, tick_ms=3_600_000) == []
    assert judged(liveness, tick_ms=3_615_000) == []
    assert judged(liveness, tick_ms=3_615_001) == [(1, False)]


def test_what_is_replayed_changes_no_verdict() -> None:
    """R12: heartbeats and ticks from before a gateway was found gone, or back."""
    gone = Liveness(15_000, [GatewayState(gateway="g", alive=False, boot=1, at_ms=30_000)])
    assert judged(gone, Sign("g", 1, 5_000, False), tick_ms=6_000) == []
    assert judged(gone, Sign("g", 1, 31_000, False)) == [(1, True)]
    back = Liveness(15_000, [GatewayState(gateway="g", alive=True, boot=1, at_ms=90_000)])
    assert judged(back, Sign("g", 1, 5_000, False), tick_ms=60_000) == []
    assert judged(back, tick_ms=91_000) == []
    assert judged(back, tick_ms=106_001) == [(1, False)]
