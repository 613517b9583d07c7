"""Data Docs: a page per date with what every expectation found in its last run, and an index of all dates.

Great Expectations renders the results; the page around them is ours: its own would load styles and scripts from a dozen
hosts and be blank without them. Our pages load nothing, and are replaced when a date is judged again; `quality_results`
has the earlier results.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime
from pathlib import Path
from typing import Any, NamedTuple

from great_expectations.core import ExpectationSuiteValidationResult
from great_expectations.render import RenderedDocumentContent
from great_expectations.render.renderer import ValidationResultsPageRenderer
from great_expectations.render.view import DefaultJinjaPageView
from jinja2 import ChoiceLoader, PackageLoader

from jobs.quality.trend import TrendDay, trend

INDEX = "index.html"


class SuiteRun(NamedTuple):
    """What the last run of a date found for a suite: how many of its `expectations` have `failed`."""

    date: date
    suite: str
    run_at: datetime
    expectations: int
    failed: int


class Pages:
    """Writes the pages into `directory`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.index = directory / INDEX
        self._view = DefaultJinjaPageView()
        # Ours by package rather than directory: in a submitted application they are inside a file.
        self._view.env.loader = ChoiceLoader([self._view.env.loader, PackageLoader("jobs.quality", ".")])
        self._renderer = ValidationResultsPageRenderer()

    def write_date(
        self, day: date, results: Mapping[str, ExpectationSuiteValidationResult], run_at: datetime, until: datetime
    ) -> None:
        """The page of a date, from its results by suite."""
        suites = [
            {"name": name, "success": result.success, "table": self._table(result)} for name, result in results.items()
        ]
        self._write(
            f"{day}.html", "date_page.j2", date=day, suites=suites, run_at=_second(run_at), until=_second(until)
        )

    def write_index(self, runs: Iterable[SuiteRun], days: Sequence[TrendDay]) -> None:
        """The index: the last run of each date, newest first, with a link where there is a page; and the trend."""
        by_date: dict[date, list[SuiteRun]] = defaultdict(list)
        for run in runs:
            by_date[run.date].append(run)
        dates = [
            {
                "date": day,
                "page": f"{day}.html" if (self._directory / f"{day}.html").exists() else None,
                "run_at": _second(max(run.run_at for run in of_date)),
                "failed": [run for run in of_date if run.failed],
                "expectations": sum(run.expectations for run in of_date),
            }
            for day, of_date in sorted(by_date.items(), reverse=True)
        ]
        self._write(INDEX, "index_of_dates.j2", dates=dates, trend=trend(days) if len(days) > 1 else "")

    def _table(self, result: ExpectationSuiteValidationResult) -> dict[str, Any]:
        """Great Expectations' table of the result: status, expectation, observed value. It creates one for each column
        judged."""
        document: RenderedDocumentContent = self._renderer.render(result)
        blocks = [block for section in document.sections[1:] for block in section.content_blocks]
        first, *others = [dict(block.to_json_dict()) for block in blocks if block.content_block_type == "table"]
        return first | {"table": [row for one in (first, *others) for row in one["table"]]}

    def _write(self, name: str, template: str, **values: Any) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        staged = self._directory / f".{name}.new"
        staged.write_text(self._view.env.get_template(template).render(**values), encoding="utf-8")
        staged.replace(self._directory / name)


def _second(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M:%S UTC")
