"""The lead of an announcement covers how far the adapters are apart, and a round trip (S4)."""

from edge.feeds.adapter.lags import Lags
from feeds.registry_records import StreamPosition


def positions(number: int) -> dict[str, StreamPosition]:
    return {"s@0": StreamPosition(number, 0)}


def test_the_lead_covers_lag_and_round_trip() -> None:
    lags = Lags()
    assert lags.lead("s@0") == 1
    for step in range(50):  # 100 a second
        lags.own_beat(positions(20 * step), 0.2 * step)
        lags.other_beat(positions(20 * step - (70 if step == 20 else 30)), {"s@0": 20 * step}, 0.2 * step)
    lags.round_trip(0.25)
    assert 70 + 50 <= lags.lead("s@0") <= 70 + 55
    assert lags.other_last == {"s@0": 20 * 49 - 30}


def test_old_lags_are_forgotten_and_a_source_that_stands_still_has_a_lead() -> None:
    lags = Lags()
    lags.other_beat(positions(0), {"s@0": 500}, 0.0)
    assert lags.lead("s@0") == 501
    lags.other_beat(positions(499), {"s@0": 500}, 61.0)
    assert lags.lead("s@0") == 2
    assert lags.lead("unknown@0") == 1
