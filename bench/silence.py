"""How long nothing comes where something should: pure arithmetic on times of arrival."""

from collections.abc import Sequence
from itertools import pairwise


def longest_gap(arrivals_s: Sequence[float], since_s: float, until_s: float) -> tuple[float, float]:
    """The two arrivals (of ascending ones) with the longest time between them, of which any part lies between the two
    moments; raises ValueError if there were none."""
    gaps = ((earlier, later) for earlier, later in pairwise(arrivals_s) if later > since_s and earlier < until_s)
    return max(gaps, key=lambda gap: gap[1] - gap[0])


def longest_silence_ms(arrivals_s: Sequence[float], interval_s: float, since_s: float, until_s: float) -> float:
    """The longest gap between arrivals of which any part lies between the two moments, less the interval at which
    messages are sent; raises ValueError if there were none."""
    earlier, later = longest_gap(arrivals_s, since_s, until_s)
    return max(0.0, later - earlier - interval_s) * 1000


def pauses_ms(arrivals_s: Sequence[float], interval_s: float, period_s: float) -> list[float]:
    """A single router's pauses: the longest silence of each period."""
    periods = int((arrivals_s[-1] - arrivals_s[0]) / period_s)
    begins = [arrivals_s[0] + number * period_s for number in range(periods)]
    return [longest_silence_ms(arrivals_s, interval_s, begin, begin + period_s) for begin in begins]
