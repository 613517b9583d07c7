"""The trend on the pages: failures, and latencies, date by date."""

from collections.abc import Sequence
from datetime import date
from math import nan
from typing import NamedTuple

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from jobs.report.svg import SERIES, inline_svg, style

MOST_DATES = 60
SIZE_IN = (9.0, 3.6)
TICKS = 12


class TrendDay(NamedTuple):
    """The last run of a date: how many expectations `failed`, and the latencies it measured, milliseconds; None if
    there were too few rows."""

    date: date
    failed: int
    routing_ms: float | None
    sending_ms: float | None


def trend(days: Sequence[TrendDay]) -> str:
    """The newest dates as an `<svg>` element: failed expectations at the bottom, latencies above."""
    shown = days[-MOST_DATES:]
    places, names = range(len(shown)), [f"{day.date:%m-%d}" for day in shown]
    with style():
        figure = Figure(figsize=SIZE_IN, layout="constrained")
        figure.patch.set_alpha(0)
        above, below = figure.subplots(2, 1, sharex=True)
        for axes in (above, below):
            axes.patch.set_alpha(0)
            axes.set_axisbelow(True)
            axes.grid(axis="y")
        latencies = {
            "routing": (SERIES[0], "o", [day.routing_ms for day in shown]),
            "sending, QoS 0": (SERIES[1], "s", [day.sending_ms for day in shown]),
        }
        for name, (color, marker, values) in latencies.items():
            drawn = [nan if value is None else value for value in values]
            above.plot(places, drawn, color=color, marker=marker, markersize=3, linewidth=1.2, label=name)
        above.set_ylabel("milliseconds")
        above.set_ylim(bottom=0)
        above.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2, borderaxespad=0)
        below.bar(places, [day.failed for day in shown], color=SERIES[3])
        below.set_ylabel("failed expectations")
        below.set_ylim(0, max(1, *(day.failed for day in shown)))
        below.yaxis.set_major_locator(MaxNLocator(4, integer=True))
        step = -(-len(shown) // TICKS)
        below.set_xticks(list(places)[::step], names[::step])
        failed = sum(bool(day.failed) for day in shown)
        return inline_svg(
            figure, "trend", f"Latencies and failed expectations by date: {failed} of {len(shown)} dates failed."
        )
