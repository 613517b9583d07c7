"""The page of `waystation report` in a real browser: all of it is drawn, nothing is loaded, what is seen can be copied;
and over tables that the real pipelines wrote."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from jobs.report.page import page
from tests.integration.conftest import BEGIN, MESSAGES, WrittenLedger
from tests.integration.jobs.browser import Tab, tab
from tests.unit.jobs.ledger_tables import append
from tests.unit.jobs.report.report_ledger import NOON, facts_of, message, presence, write_busy_date

PLOTS = 12
LEAST_CONTRAST = 4.5  # WCAG 2.2, 1.4.3
HOSTILE = "<img src=//e.example/x onerror=a()><script>b()</script>"

CONTRASTS = """(() => {
  const linear = v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => 0.2126 * linear(r / 255) + 0.7152 * linear(g / 255) + 0.0722 * linear(b / 255);
  const parts = color => color.match(/[\\d.]+/g).slice(0, 3).map(Number);
  const ground = light(parts(getComputedStyle(document.body).backgroundColor));
  const texts = [...document.querySelectorAll('h1, p, dt, dd, a, th, td, caption, figcaption, figure text')];
  return texts.map(one => {
    const style = getComputedStyle(one), own = light(parts(one.closest('svg') ? style.fill : style.color));
    return (Math.max(own, ground) + 0.05) / (Math.min(own, ground) + 0.05);
  });
})()"""

DRAWN = """[...document.querySelectorAll('figure svg')].map(svg => {
  const box = svg.getBoundingClientRect();
  const shapes = [...svg.querySelectorAll('path[clip-path], [clip-path] path')].map(one => one.getBoundingClientRect());
  return {width: box.width, height: box.height, shapes: shapes.filter(one => one.width + one.height > 0).length,
          visible: svg.checkVisibility({checkOpacity: true, checkVisibilityCSS: true})};
})"""


def selected(selector: str) -> str:
    """Script: what a reader copies who selects the first such element."""
    return f"(getSelection().selectAllChildren(document.querySelector({selector!r})), getSelection().toString())"


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    """The page of a busy date, opened at a desk's width."""
    directory = tmp_path_factory.mktemp("report")
    tables = str(directory / "tables")
    write_busy_date(tables)
    append(tables, "messages", [message("hostile", NOON, HOSTILE, HOSTILE, payload_bytes=1_234_567)])
    append(tables, "presence_history", [
        presence(HOSTILE, NOON, "connected", NOON), presence(HOSTILE, NOON, "lost", NOON + timedelta(minutes=9)),
    ])  # fmt: skip
    file = directory / "page.html"
    file.write_text(page(facts_of(tables, str(directory / "spill"))))
    with tab(directory / "profile") as one:
        one.call("Emulation.setDeviceMetricsOverride", width=1300, height=900, deviceScaleFactor=1, mobile=False)
        one.open(file.as_uri())
        yield one


def test_every_plot_is_drawn(opened: Tab) -> None:
    plots: list[dict[str, Any]] = opened.run(DRAWN)
    assert len(plots) == PLOTS
    for plot in plots:
        assert plot["visible"]
        assert plot["width"] > 400
        assert 100 < plot["height"] < 400
        assert plot["shapes"] > 0


def test_nothing_is_loaded_and_nothing_runs(opened: Tab) -> None:
    """Names that would load or run something are text."""
    assert [url for url in opened.requests if not url.startswith("file:///")] == []
    assert len(opened.requests) == 1
    assert opened.complaints == []
    assert opened.run("document.scripts.length + document.images.length") == 0
    assert HOSTILE in opened.run("document.querySelector('#talkers').innerText")


def test_what_is_seen_can_be_copied(opened: Tab) -> None:
    """Numbers without what sets their digits apart, and the words of a plot."""
    assert "1234567" in opened.run(selected("#talkers"))
    assert "1 234 567" not in opened.run(selected("#talkers"))
    words = opened.run(selected("#traffic figure"))
    assert all(word in words for word in ("QoS 1", "deliveries", "12:00", "UTC")), words


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_ground(opened: Tab, scheme: str) -> None:
    opened.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    assert opened.run("matchMedia('(prefers-color-scheme: dark)').matches") is (scheme == "dark")
    contrasts = opened.run(CONTRASTS)
    assert len(contrasts) > 200
    assert min(contrasts) >= LEAST_CONTRAST


@pytest.mark.parametrize("width", [360, 1300])
def test_a_page_is_as_wide_as_its_window(opened: Tab, width: int) -> None:
    """What is wider, as tables are, scrolls by itself."""
    opened.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
    assert opened.run("document.documentElement.scrollWidth") <= width


def test_what_the_pipelines_wrote(written_ledger: WrittenLedger, tmp_path: Path) -> None:
    """Of two dates, as midnight parts their rows; one client stayed over it, of the other nobody knows."""
    first, second = (
        facts_of(written_ledger.tables, str(tmp_path), (BEGIN + timedelta(days=days)).date()) for days in (0, 1)
    )
    assert (first.totals["messages"], second.totals["messages"]) == (30, MESSAGES - 30)
    assert sum(row["messages"] for row in first.rows("topics")) == 30
    assert {(row["how"], row["connections"]) for row in first.rows("ends")} == {(None, 1), ("unreported", 1)}
    assert [row["client"] for row in second.rows("longest_connections")] == ["bob"]
    assert "<bdi>bob</bdi>" in page(second)
