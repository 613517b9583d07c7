"""The quality job over a ledger of its own: what holds passes, each fault is found by what is meant to find it."""

import copy
import os
import re
import shutil
import subprocess
import sys
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import NamedTuple

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from jobs.output import output
from jobs.quality.dates import Asked
from jobs.quality.report import show
from jobs.quality.run import Report, Request, judge, prepare
from jobs.query.ledger_reader import LedgerReader
from pipelines.quality.expectations import DELIVERY_LATENCY, EXPECTATIONS, ROUTING_LATENCY
from schemas.settings import Settings, process_settings
from tests import draw
from tests.integration.jobs.browser import OPTIONS, chromium
from tests.integration.jobs.quality_ledger import (
    FAULTS,
    SECOND,
    Ledger,
    place_in_a_quiet_partition,
    rewrite,
    write,
)

pytestmark = pytest.mark.timeout(600)  # the first test pays for all of them

OVERRIDES = {
    "WAYSTATION_QUALITY__LATENCY_ROWS": "5",
    "WAYSTATION_QUALITY__LATENCY_QUANTILE": "0.5",
    "WAYSTATION_QUALITY__DATES_PER_PASS": "100",
}


ALWAYS = [faults for faults in FAULTS if len(faults) > 1 or "touches" in faults]
DRAWN = ALWAYS + draw.some([faults for faults in FAULTS if faults not in ALWAYS], 1, "dates with one fault")
"""Each date takes four seconds."""


class QualityHarness(NamedTuple):
    """A judged ledger: `faults` of each date, by the expectations that find them; none where all holds. `now` is the
    time of the run, two minutes after an instruction whose message is not there yet."""

    ledger: Ledger
    settings: Settings
    faults: dict[date, set[str]]
    now: datetime
    report: Report

    @property
    def failed(self) -> list[date]:
        return [day for day, of_day in self.faults.items() if of_day]

    def day_of(self, fault: str) -> date:
        return next(day for day, of_day in self.faults.items() if fault in of_day)


def settings_over(data: Path) -> Settings:
    return process_settings({"WAYSTATION_DATA": str(data), **OVERRIDES})


@pytest.fixture(scope="module")
def harness(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> QualityHarness:
    """All dates are judged in one run."""
    settings, ledger = settings_over(tmp_path_factory.mktemp("quality")), Ledger()
    faults = {ledger.add_day(): set[str]()}
    for of_day in DRAWN:
        faults[ledger.add_day(of_day.values())] = set(of_day)
    faults[ledger.add_day([place_in_a_quiet_partition(0)])] = set()
    faults[ledger.add_day()] = set()
    faults[ledger.add_day([place_in_a_quiet_partition(1)])] = set()
    faults[ledger.add_day([place_in_a_quiet_partition(3)])] = {"offsets"}
    for _ in range(2):  # the second time with the offsets of the day before
        ledger.make_ingress_again()
        faults[ledger.add_day()] = set()
    faults[ledger.add_day(routing=4 * SECOND)] = {ROUTING_LATENCY}
    faults[ledger.add_day(sending=8 * SECOND)] = {DELIVERY_LATENCY}
    last = ledger.add_day()
    faults[last] = set()
    now = datetime.combine(last, time(14))
    ahead = datetime.combine(last, time(13, 58), UTC)
    early = {"message_id": "00000000-0000-0000-0000-000000000000", "shard": 9, "appended": ahead}
    ledger.rows["instructions"].append(ledger.rows["instructions"][-1] | early)
    write(settings.tables, ledger.rows)
    return QualityHarness(ledger, settings, faults, now, judge(spark, settings, prepare(settings, Request(), now)))


def utc_now() -> datetime:
    return datetime.now(UTC).replace(tzinfo=None)


def waystation(settings: Settings, java_home: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """`waystation quality`."""
    environment = os.environ | OVERRIDES | {"JAVA_HOME": str(java_home)}
    command = [sys.executable, "-m", "jobs.cli.main", "--data", settings.data, "quality", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=280, env=environment)


NAMES = [expectation.name for expectation in EXPECTATIONS]
LATER = {"offsets", ROUTING_LATENCY, DELIVERY_LATENCY}
"""Faults that the harness adds itself."""


def test_there_is_a_fault_of_each_kind() -> None:
    assert set().union(LATER, *FAULTS) == set(NAMES)


@pytest.mark.parametrize("name", [name for name in NAMES if name in LATER.union(*DRAWN)])
def test_a_fault_is_found_by_what_is_meant_to_find_it(harness: QualityHarness, name: str) -> None:
    """And by nothing else; an example says where."""
    day = harness.day_of(name)
    found = {result.measured.expectation.name: result for result in harness.report.failures if result.day == day}
    assert found.keys() == harness.faults[day]
    assert found[name].measured.unexpected >= len(found[name].measured.examples) > 0


def test_what_is_no_fault_is_not_reported(harness: QualityHarness) -> None:
    """Copies of nothing, two decisions on a message, outcomes and completions on a later date, a message that was sent
    again, a quarantined record and its instruction, a retained message of long ago, a topic that was made again."""
    good = {day for day, faults in harness.faults.items() if not faults}
    assert not [result for result in harness.report.failures if result.day in good]
    assert {result.day for result in harness.report.results} == set(harness.faults)


def test_results_are_in_their_table_once(harness: QualityHarness) -> None:
    """A row an expectation and date, of one run."""
    rows = LedgerReader(harness.settings.tables).query(
        "SELECT count(*), count(DISTINCT (date, expectation)), count(DISTINCT run_id), "
        "count(*) FILTER (NOT success), count(*) FILTER (NOT success AND sample IS NULL) FROM quality_results"
    )
    results = len(NAMES) * len(harness.faults)
    failures = sum(len(of_day) for of_day in harness.faults.values())
    assert rows.rows == [(results, results, 1, failures, 0)]


def test_the_newest_rows_are_left_to_a_later_run(harness: QualityHarness) -> None:
    """What has not settled: an instruction may be there before its message."""
    last = max(harness.faults)
    assert not [result for result in harness.report.failures if result.day == last]
    for request in (Request(), Request(settle_s=0.0)):
        assert prepare(harness.settings, request, harness.now).dates == [*harness.failed, last]


def test_a_date_is_judged_again_when_it_has_more_rows(harness: QualityHarness) -> None:
    """Or has failed; else only the newest, and one that is asked for."""
    settings, (first, second, *_, last) = harness.settings, sorted(harness.faults)
    assert prepare(settings, Request(Asked((first,))), harness.now).dates == [first]
    assert prepare(settings, Request(Asked(since=second)), harness.now).dates == sorted(harness.faults)[1:]
    write(settings.tables, {"presence_history": [harness.ledger.rows["presence_history"][0] | {"seq": 5}]})
    try:
        assert prepare(settings, Request(), harness.now).dates == [first, *harness.failed, last]
    finally:
        table = DeltaTable(f"{settings.tables}/presence_history")
        table.restore(table.version() - 1)


def test_a_gap_in_a_quiet_partition_is_found_across_days(harness: QualityHarness) -> None:
    """Days on which other partitions have messages; and a partition that goes on after days is no fault."""
    (found,) = [
        result for result in harness.report.failures if "partition 9, offsets 2 to 2" in result.measured.examples
    ]
    assert harness.faults[found.day] == {found.measured.expectation.name} == {"offsets"}


def test_the_report_names_the_rows(harness: QualityHarness, capsys: pytest.CaptureFixture[str]) -> None:
    show(harness.report, output())
    said = capsys.readouterr().out
    assert {result.day for result in harness.report.failures} == set(harness.failed)
    for failure in harness.report.failures:
        words = failure.measured.expectation.sentence.split()
        assert " ".join(words[:3]) in said, "it may go on in the next line"
        assert failure.measured.examples[0] in said


@draw.long_test
def test_a_date_fails_until_it_is_repaired(spark: SparkSession, harness: QualityHarness, tmp_path: Path) -> None:
    """Every later run judges it again without being asked; after a repair that leaves as many rows, no more."""
    settings, day = settings_over(tmp_path), harness.day_of("touches")
    shutil.copytree(harness.settings.tables, settings.tables)
    assert day in prepare(settings, Request(), harness.now).dates
    rows = copy.deepcopy(harness.ledger.rows)
    (wrong,) = [row for row in rows["completions"] if row["touches"] == 3]
    wrong["touches"] = sum(row["message_id"] == wrong["message_id"] for row in rows["instructions"])
    rewrite(settings.tables, "completions", rows)
    soon = harness.now + timedelta(seconds=1)
    found = judge(spark, settings, prepare(settings, Request(Asked((day,))), soon))
    assert (found.dates, found.failures) == ([day], [])
    assert day not in prepare(settings, Request(), soon).dates


def test_pages_show_it_in_a_browser_without_a_network(harness: QualityHarness) -> None:
    """The index leads to a page a date; nothing is loaded from anywhere."""
    browser = chromium()
    pages = harness.report.first_page.parent
    day = harness.day_of("message_of_outcome")

    def seen(page: str) -> str:
        command = [browser, *OPTIONS, "--dump-dom", f"file://{pages / page}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        assert not re.search(r'(src|href)="(https?:)?//', done.stdout)
        return done.stdout

    index = seen("index.html")
    assert index.count(">✗ failed<") == sum(bool(faults) for faults in harness.faults.values())
    assert f'<a href="{day}.html">' in index
    assert f'by date: {len(harness.failed)} of {len(harness.faults)} dates failed."' in index
    page = seen(f"{day}.html")
    assert "Every outcome's message is in messages" in page
    assert "message 00000000-0000-0000-0000-00003b9aca02, untouched" in page
    assert page.count("fa-times") - page.count("fa-times::before") == len(harness.faults[day])


def test_the_command_fails_as_long_as_dates_do(harness: QualityHarness, java_home: Path) -> None:
    """Also where there is nothing to judge, as when nothing has settled; no Spark is started for that."""
    done = waystation(harness.settings, java_home, "--settle", "1e9")
    assert (done.returncode, done.stderr) == (1, "")
    assert "nothing to check" in done.stdout
    assert (
        f"{len(harness.failed)} dates failed in an earlier run and were not checked again: {harness.failed[0]}"
        in done.stdout
    )
