"""The kinds of plots on the page. Nothing that a client chose is drawn: names stand in tables."""

from collections.abc import Mapping, Sequence
from datetime import UTC
from math import nan

from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, DateFormatter, date2num
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from jobs.report.grid import Grid
from jobs.report.parts import plain_number
from jobs.report.svg import INK, SERIES, inline_svg, style

SIZE_IN = (7.2, 2.9)
LINE_WIDTH = 1.2
DASHES = ("solid", (0, (5, 1)), (0, (3, 1)), (0, (1, 1)))
"""Lines differ by more than their color."""

Values = Sequence[float | None]


def over_time(
    anchor: str,
    label: str,
    unit: str,
    grid: Grid,
    layers: Mapping[str, Values],
    line: Mapping[str, Values] | None = None,
) -> str:
    """Areas upon each other, a value a step of `grid`, and lines over them."""
    with style():
        figure, axes = _figure(unit)
        edges = _edges(grid)
        ground = [0.0] * (len(edges) - 1)
        for color, (name, values) in zip(SERIES, layers.items(), strict=False):
            top = [below + (value or 0) for below, value in zip(ground, values, strict=True)]
            axes.stairs(top, edges, baseline=ground, fill=True, color=color, linewidth=0, label=name)
            ground = top
        for name, values in (line or {}).items():
            axes.stairs(
                [value or 0 for value in values], edges, baseline=None, color=INK, linewidth=LINE_WIDTH, label=name
            )
        _finish(axes, grid, len(layers) + len(line or {}) > 1)
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
        return inline_svg(figure, anchor, label)


def percentiles_over_time(anchor: str, label: str, grid: Grid, lines: Mapping[str, Values]) -> str:
    """Milliseconds, linear below one and by powers of ten above; gaps where there is nothing."""
    with style():
        figure, axes = _figure("milliseconds")
        edges = _edges(grid)
        for color, dashes, (name, values) in zip(SERIES, DASHES, lines.items(), strict=False):
            drawn = [nan if value is None else value for value in values]
            axes.stairs(drawn, edges, baseline=None, color=color, linestyle=dashes, linewidth=LINE_WIDTH, label=name)
        axes.set_yscale("symlog", linthresh=1)
        _finish(axes, grid, True)
        axes.set_ylim(bottom=0)
        return inline_svg(figure, anchor, label)


def bars(anchor: str, label: str, unit: str, x_label: str, values: Mapping[str, float]) -> str:
    """A bar a name, in the order given; heights by powers of ten, so that a few beside many are seen."""
    with style():
        figure, axes = _figure(unit)
        axes.bar(list(values), list(values.values()), color=SERIES[0], width=0.9)
        axes.set_yscale("symlog", linthresh=1)
        axes.set_xlabel(x_label)
        axes.tick_params(axis="x", rotation=40)
        axes.yaxis.set_major_formatter(_PLAIN)
        axes.grid(axis="y")
        return inline_svg(figure, anchor, label)


def _figure(unit: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=SIZE_IN, layout="constrained")
    figure.patch.set_alpha(0)
    axes = figure.add_subplot()
    axes.patch.set_alpha(0)
    axes.set_axisbelow(True)
    axes.set_ylabel(unit)
    return figure, axes


def _edges(grid: Grid) -> list[float]:
    return [float(date2num(grid.at(step))) for step in range(grid.steps + 1)]


def _finish(axes: Axes, grid: Grid, has_legend: bool) -> None:
    axes.set_xlim(float(date2num(grid.at(0))), float(date2num(grid.at(grid.steps))))
    axes.xaxis.set_major_locator(AutoDateLocator(minticks=4, maxticks=9))
    axes.xaxis.set_major_formatter(DateFormatter("%H:%M" if grid.has_whole_minutes else "%H:%M:%S", tz=UTC))
    axes.set_xlabel("UTC")
    axes.yaxis.set_major_formatter(_PLAIN)
    axes.grid()
    if has_legend:
        axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=5, borderaxespad=0)


_PLAIN = FuncFormatter(lambda value, _: plain_number(value))
