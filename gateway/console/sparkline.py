"""Small plots as SVG points, drawn by the server: no library, no script, and the page's style gives the colours."""

from collections.abc import Callable, Sequence

from gateway.console.history import INTERVAL_S, SAMPLES, Series
from gateway.console.parts import Line, Plot

WIDTH, HEIGHT = 240, 48
"""The view box; `live.j2` has the same."""
_EDGE = 2
SPAN_S = INTERVAL_S * (SAMPLES - 1)
"""The time from the left edge to the right one, which is now."""


def plot(title: str, lines: Sequence[tuple[str, Series]], shown: Callable[[float], str]) -> Plot:
    """The lines share one scale from 0 to the largest value; `shown` gives a value as text."""
    top = max((value for _, series in lines for value in series.values), default=0.0)
    newest = max((series.times[-1] for _, series in lines if series.times), default=0.0)
    drawn = [Line(label, shown(series.latest), _points(series, newest, top)) for label, series in lines]
    return Plot(title, drawn, shown(top))


def _points(series: Series, newest: float, top: float) -> str:
    """Values above each other by time, the newest at the right edge; what is older than the span is left out."""
    scale = (HEIGHT - 2 * _EDGE) / top if top > 0 else 0.0
    points = []
    for at, value in zip(series.times, series.values, strict=True):
        x = WIDTH * (1 - (newest - at) / SPAN_S)
        if x >= 0:
            points.append(f"{x:.1f},{HEIGHT - _EDGE - value * scale:.1f}")
    return " ".join(points)
