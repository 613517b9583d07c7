"""Plots of the last minutes, as values that the page's script gives to uPlot (`plots.js`), which draws them."""

from collections.abc import Callable, Sequence
from typing import Final, Literal

import msgspec

from gateway.console.history import INTERVAL_S, SAMPLES, Series
from gateway.console.parts import Line, Plot

SPAN_S: Final = INTERVAL_S * (SAMPLES - 1)
"""The time from the left edge to the right one, which is now."""
_DIGITS: Final = 4

Unit = Literal["", "/s", " bytes/s"]
"""What follows a number in the browser."""


def plot(title: str, lines: Sequence[tuple[str, Series]], shown: Callable[[float], str], unit: Unit = "") -> Plot:
    """The lines have the same times, and share one scale from 0 to the largest value; `shown` gives a value as text."""
    top = max((value for _, series in lines for value in series.values), default=0.0)
    times = lines[0][1].times
    newest = times[-1] if times else 0.0
    first = sum(newest - at > SPAN_S for at in times)
    data = {
        "times": [round(at - newest, 1) for at in times[first:]],
        "lines": [[_rounded(value) for value in series.values[first:]] for _, series in lines],
        "span": SPAN_S,
        "unit": unit,
    }
    drawn = [Line(label, shown(series.latest)) for label, series in lines]
    return Plot(title, drawn, shown(top), msgspec.json.encode(data).decode())


def _rounded(value: float) -> float:
    """More digits than anybody sees make the page longer."""
    return float(f"{value:.{_DIGITS}g}")
