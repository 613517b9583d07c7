"""A run of all measurements: what it writes, what it keeps, and what it says of those that fail."""

import json
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis.strategies import floats, lists

from bench import __main__ as bench
from bench.figures import CURVES, DECADES, JSON, POINTS_A_DECADE, TIMES, Figures, curve
from bench.plot import PLOT
from edge.sim import figures as mesh_figures
from edge.sim.trace import FILES

PERFORMANCE = Path(__file__).parents[3] / "docs" / "performance.md"
PROMISED = (
    "ledger_events_per_s",
    "ledger_batch_ratio_20m",
    "presence_p99_ms",
    "router_pause_ratio_200k",
    "kill_active_silence_ms",
    "replace_silence_ms",
)
OF_THE_EDGE = (
    *("agent_store_per_s", "agent_store_batched_per_s", "agent_drain_per_s", "agent_rss_mb", "agent_idle_core"),
    *("client_reconnect_ms", "connect_points_p99_ms"),
)
"""Keys of mesh.json that `make bench` writes, beside those of `make mesh`."""
OF_THE_MESH = [key for trace in FILES for key in mesh_figures.keys(trace)]


def figures() -> Figures:
    """Those of a run whose clock is a minute later at each look."""
    minutes: Iterator[int] = count()
    return Figures(lambda: datetime(2026, 11, 24, 12, next(minutes), tzinfo=UTC))


def adds(**values: float) -> Callable[[Figures, float], None]:
    def measure(to: Figures, scale: float) -> None:
        for name, value in values.items():
            to.add(name, value * scale)

    return measure


def fails(_to: Figures, _scale: float) -> None:
    raise RuntimeError("the broker did not start")


def written(out: Path, name: str = JSON) -> dict[str, object]:
    return dict(json.loads((out / name).read_text()))


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> dict[str, bench.Measurement]:
    parts = {
        "one": bench.Measurement(adds(one_ms=1), ("one_ms",)),
        "two": bench.Measurement(adds(two_ms=2, two_per_s=20), ("two_ms",)),
    }
    monkeypatch.setattr(bench, "MEASUREMENTS", parts)
    return parts


def test_a_whole_run_writes_its_figures_only(parts: dict[str, bench.Measurement], tmp_path: Path) -> None:
    assert parts
    (tmp_path / JSON).write_text('{"of_an_earlier_run": 5}')
    assert bench.run(None, 0.5, figures(), tmp_path) == 0
    assert written(tmp_path) == {"one_ms": 0.5, "two_ms": 1.0, "two_per_s": 10.0}
    assert not (tmp_path / PLOT).exists()  # it would be empty


def test_the_edge_stands_beside_the_simulation(
    parts: dict[str, bench.Measurement], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """M19: either keeps in mesh.json what the other has written."""
    monkeypatch.setattr(bench, "OF_MESH", ("two",))
    mesh_figures.write({"mesh_school_ratio": 1.0, "mesh_school_tx": 7.0}, tmp_path)
    assert bench.run("two", 1.0, figures(), tmp_path) == 0
    assert written(tmp_path, mesh_figures.JSON) == {"mesh_school_ratio": 1.0, "mesh_school_tx": 7.0, "two_ms": 2.0}
    mesh_figures.write({"mesh_school_ratio": 0.9}, tmp_path)
    assert written(tmp_path, mesh_figures.JSON) == {"mesh_school_ratio": 0.9, "two_ms": 2.0}


def test_a_part_keeps_the_figures_of_the_others(parts: dict[str, bench.Measurement], tmp_path: Path) -> None:
    """And one can tell when each was measured."""
    assert bench.run(None, 1.0, figures(), tmp_path) == 0
    before = written(tmp_path, TIMES)
    parts["one"] = bench.Measurement(adds(one_ms=7), ("one_ms",))
    later = Figures(lambda: datetime(2026, 11, 25, tzinfo=UTC))
    assert bench.run("one", 1.0, later, tmp_path) == 0
    assert written(tmp_path) == {"one_ms": 7.0, "two_ms": 2.0, "two_per_s": 20.0}
    assert written(tmp_path, TIMES) == before | {"one_ms": "2026-11-25T00:00:00+00:00"}


def test_a_part_keeps_the_curves_of_the_others(parts: dict[str, bench.Measurement], tmp_path: Path) -> None:
    """So that there is a whole picture of parts that ran one by one."""
    parts["one"] = bench.Measurement(lambda to, _: to.latencies("one", [1.0, 2.0]), ("one_p99_ms",))
    parts["two"] = bench.Measurement(lambda to, _: to.latencies("replace", [3.0]), ("replace_p99_ms",))
    assert bench.run("one", 1.0, figures(), tmp_path) == 0
    assert bench.run("two", 1.0, figures(), tmp_path) == 0
    assert written(tmp_path, CURVES) == {"one": [[1.0, 0.75], [2.0, 0.25]], "replace": [[3.0, 0.5]]}
    assert (tmp_path / PLOT).stat().st_size > 10_000


@given(lists(floats(0.1, 1e4), min_size=1, max_size=2000))
def test_a_curve_has_what_is_seen_of_it(latencies_ms: list[float]) -> None:
    """Few points, which fall, among them the slowest of all."""
    ordered = sorted(latencies_ms)
    points = curve(ordered)
    assert len(points) <= POINTS_A_DECADE * DECADES
    assert [ms for ms, _ in points] == sorted(ms for ms, _ in points)
    assert [share for _, share in points] == sorted({share for _, share in points}, reverse=True)
    assert points[-1] == (ordered[-1], pytest.approx(0.5 / len(ordered)))


def test_a_part_that_fails_costs_no_other(
    parts: dict[str, bench.Measurement], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    parts["one"] = bench.Measurement(fails, ("one_ms",))
    assert bench.run(None, 1.0, figures(), tmp_path) == 1
    assert written(tmp_path) == {"two_ms": 2.0, "two_per_s": 20.0}
    said = capfd.readouterr().out
    assert "failed: one: the broker did not start" in said
    assert "missing: one_ms\n" in said


def test_a_run_that_is_stopped_keeps_what_it_has(parts: dict[str, bench.Measurement], tmp_path: Path) -> None:
    def stopped(_to: Figures, _scale: float) -> None:
        raise KeyboardInterrupt

    parts["two"] = bench.Measurement(stopped, ("two_ms",))
    with pytest.raises(KeyboardInterrupt):
        bench.run(None, 1.0, figures(), tmp_path)
    assert written(tmp_path) == {"one_ms": 1.0}


def test_a_file_that_was_cut_off_is_begun_anew(parts: dict[str, bench.Measurement], tmp_path: Path) -> None:
    assert parts
    (tmp_path / JSON).write_text('{"one_ms": ')
    assert bench.run("two", 1.0, figures(), tmp_path) == 0
    assert written(tmp_path) == {"two_ms": 2.0, "two_per_s": 20.0}


def documented() -> list[str]:
    """Names in docs/performance.md that look like keys; `…` stands for more of a name."""
    return re.findall(r"`([a-z][a-z0-9]*_[a-z0-9_…]*)`", PERFORMANCE.read_text())


def pattern(key: str) -> re.Pattern[str]:
    """Of a documented name."""
    return re.compile(re.escape(key).replace("…", ".+"))


@pytest.mark.parametrize("key", sorted({*PROMISED, *OF_THE_EDGE, *documented()}))
def test_a_key_that_is_told_of_is_one_that_a_measurement_has(key: str) -> None:
    declared = [*(name for part in bench.MEASUREMENTS.values() for name in part.keys), *OF_THE_MESH]
    assert any(pattern(key).fullmatch(name) for name in declared), f"no measurement declares {key}"


@pytest.mark.parametrize("key", [*OF_THE_EDGE, *OF_THE_MESH])
def test_each_figure_of_edge_and_mesh_is_documented(key: str) -> None:
    assert any(pattern(name).fullmatch(key) for name in documented())


def test_the_edge_is_measured_into_the_figures_of_the_mesh() -> None:
    """One flat file has both."""
    assert set(OF_THE_EDGE) <= set(bench.MEASUREMENTS["edge"].keys)
    assert "edge" in bench.OF_MESH
    for trace in ("hospital", "school", "thiers"):
        for figure in ("ratio", "tx", "hits", "ratio_vs_spray", "tx_vs_spray", "unlimited_vs_oracle"):
            assert f"mesh_{trace}_{figure}" in OF_THE_MESH
