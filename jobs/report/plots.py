"""The kinds of plots on the page. Plots show nothing that a client chose: names are in tables only."""

from collections.abc import Mapping, Sequence
from datetime import UTC
from itertools import pairwise
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
BANDS = (0.55, 0.3, 0.15)
"""Opacities of the bands between percentiles, lowest first."""
RESTARTS = "gateway lost or restarted"

Values = Sequence[float | None]


def over_time(
    anchor: str,
    label: str,
    unit: str,
    grid: Grid,
    layers: Mapping[str, Values],
    line: Mapping[str, Values] | None = None,
    restarts: Sequence[int] = (),
) -> str:
    """Stacked areas, a value per step of `grid`, with lines over them; `restarts` are steps in which a gateway was lost
    or restarted."""
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
        _mark(axes, edges, restarts)
        _finish(axes, grid, len(layers) + len(line or {}) + bool(restarts) > 1)
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
        return inline_svg(figure, anchor, label)


def side_by_side(
    anchor: str,
    label: str,
    unit: str,
    grid: Grid,
    bars: Mapping[str, tuple[str, Values]],
    restarts: Sequence[int] = (),
) -> str:
    """Bars side by side in each step of `grid`: by name their color and values."""
    with style():
        figure, axes = _figure(unit)
        edges = _edges(grid)
        width = (edges[1] - edges[0]) * 0.9 / max(1, len(bars))
        for place, (name, (color, values)) in enumerate(bars.items()):
            begins = [edge + place * width for edge in edges[:-1]]
            axes.bar(begins, [value or 0 for value in values], width, align="edge", color=color, label=name)
        _mark(axes, edges, restarts)
        _finish(axes, grid, True)
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
        return inline_svg(figure, anchor, label)


def percentiles_over_time(
    anchor: str, label: str, grid: Grid, percentiles: Mapping[str, Values], restarts: Sequence[int] = ()
) -> str:
    """Milliseconds, linear below one and logarithmic above; gaps where there are no values. The first of the
    `percentiles` is a line; bands connect each to the next, fainter for higher ones."""
    with style():
        figure, axes = _figure("milliseconds")
        edges = _edges(grid)
        drawn = {name: [nan if value is None else value for value in values] for name, values in percentiles.items()}
        (first, line), *_ = drawn.items()
        for opacity, ((low, lower), (high, higher)) in zip(BANDS, pairwise(drawn.items()), strict=False):
            bottom, top = [*lower, lower[-1]], [*higher, higher[-1]]
            axes.fill_between(
                edges, bottom, top, step="post", color=SERIES[0], alpha=opacity, linewidth=0, label=f"{low}\u2013{high}"
            )
        axes.stairs(line, edges, baseline=None, color=INK, linewidth=LINE_WIDTH, label=first)
        _mark(axes, edges, restarts)
        axes.set_yscale("symlog", linthresh=1)
        _finish(axes, grid, True)
        axes.set_ylim(bottom=0)
        return inline_svg(figure, anchor, label)


def grouped_bars(
    anchor: str, label: str, unit: str, groups: Sequence[str], values: Mapping[str, Sequence[float]]
) -> str:
    """A bar per name for each of the `groups`, side by side; logarithmic heights."""
    with style():
        figure, axes = _figure(unit)
        width = 0.8 / len(values)
        for place, (color, (name, heights)) in enumerate(zip(SERIES, values.items(), strict=False)):
            axes.bar(
                [n + place * width for n in range(len(groups))], heights, width, align="edge", color=color, label=name
            )
        axes.set_xticks([n + 0.4 for n in range(len(groups))], groups)
        axes.set_yscale("symlog", linthresh=1)
        axes.yaxis.set_major_formatter(_PLAIN)
        axes.grid(axis="y")
        axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=5, borderaxespad=0)
        return inline_svg(figure, anchor, label)


def bars(anchor: str, label: str, unit: str, x_label: str, values: Mapping[str, float], by_powers: bool = True) -> str:
    """A bar per name, in the given order; logarithmic heights if `by_powers`, so that small values next to large ones
    are visible."""
    with style():
        figure, axes = _figure(unit)
        axes.bar(list(values), list(values.values()), color=SERIES[0], width=0.9)
        if by_powers:
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


def _mark(axes: Axes, edges: Sequence[float], restarts: Sequence[int]) -> None:
    for place, step in enumerate(restarts):
        label = RESTARTS if place == 0 else None
        axes.axvline(edges[step], color=SERIES[3], linestyle=(0, (2, 2)), linewidth=LINE_WIDTH, label=label)


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
