"""What maintenance chooses: pure functions of dates, files and rows."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from threading import Event, Thread
from uuid import uuid4

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow.fs import FileInfo, FileType

from jobs.maintain import report
from jobs.maintain.current import ended_before, kept_messages, kept_presence, kept_routes
from jobs.maintain.leftovers import SUBMISSIONS, Left, submission_steps, superseded
from jobs.maintain.plan import KEPT_BY, Amount, DataFile, kept_days, kept_no_more, scattered
from jobs.maintain.run import DONE, FAILED, PLANNED, Result
from jobs.maintain.vacuum import empty_directories, left_by_tasks, relative
from pipelines.sinks import PROPERTIES, REWRITTEN
from schemas.errors import SettingsError
from schemas.maintain_settings import MaintainSettings
from schemas.settings import load_settings
from schemas.tables import FAR_FUTURE, HISTORY, QUALITY_RESULTS, ROUTES_HISTORY

TODAY = date(2026, 11, 22)
NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
DAY = timedelta(days=1)
SETTINGS = MaintainSettings(
    message_days=30,
    presence_days=7,
    quarantine_days=0,
    quality_days=0,
    small_files=4,
    file_bytes=1 << 20,
    vacuum_hours=24,
    leftover_days=30,
)
BATCH = "17-0198c0de-0000-4000-8000-000000000000"


def file(size: int) -> DataFile:
    return DataFile("f", size, 1)


def test_a_date_is_kept_for_whole_days_after_it_is_over() -> None:
    dates = [TODAY - n * DAY for n in range(10)]
    assert kept_no_more(dates, 7, TODAY) == [TODAY - 9 * DAY, TODAY - 8 * DAY]
    assert kept_no_more(dates, 0, TODAY) == []


def test_every_history_has_a_setting_but_that_of_routes() -> None:
    """`explain` and `audit` fold the history of routes from its beginning."""
    histories = {*(table.name for table in HISTORY), QUALITY_RESULTS.name}
    assert set(KEPT_BY) == histories - {ROUTES_HISTORY.name}
    assert kept_days(SETTINGS, "routes_history") == 0
    assert (kept_days(SETTINGS, "outcomes"), kept_days(SETTINGS, "message_presence_history")) == (30, 7)


def test_finished_dates_with_many_small_files_are_compacted() -> None:
    half = SETTINGS.file_bytes // 2
    days = {
        TODAY: [file(10)] * 100,
        TODAY - DAY: [file(10)] * 5,
        TODAY - 2 * DAY: [file(10)] * 4,
        TODAY - 3 * DAY: [file(half)] * 100,
        TODAY + DAY: [file(10)] * 5,
    }
    assert scattered(days, SETTINGS, TODAY, with_today=False) == [TODAY - DAY]
    assert scattered(days, SETTINGS, TODAY, with_today=True) == [TODAY - DAY, TODAY, TODAY + DAY]


@given(st.dictionaries(st.sampled_from([TODAY - n * DAY for n in range(40)]), st.lists(st.integers(0, 1 << 21))))
def test_what_is_removed_need_not_be_compacted(sizes: dict[date, list[int]]) -> None:
    """And the amounts of both are those of the dates, each once."""
    days = {day: [file(size) for size in found] for day, found in sizes.items()}
    removed = kept_no_more(days, 30, TODAY)
    rest = {day: found for day, found in days.items() if day not in removed}
    assert not set(removed) & set(scattered(rest, SETTINGS, TODAY, with_today=True))
    both = Amount.of(days, removed), Amount.of(days, rest)
    assert sum(one.files for one in both) == sum(map(len, sizes.values()))
    assert sum(one.bytes for one in both) == sum(map(sum, sizes.values()))


def test_offline_clients_go_when_nothing_was_heard_of_them_for_long() -> None:
    """R12: who is online stays, however long."""
    updated = [NOW - 8 * DAY, NOW - 8 * DAY, NOW - 6 * DAY]
    rows = pa.table({"client": ["a", "b", "c"], "online": [False, True, False], "updated": updated})
    kept = kept_presence(rows, NOW - 7 * DAY)
    assert (kept.rows["client"].to_pylist(), kept.over) == (["b", "c"], 1)


def test_messages_go_when_their_record_is_kept_no_longer() -> None:
    """M9: how long that record is kept."""
    rows = pa.table({"message_id": ["a", "b", "c"], "kept_until": pa.array([NOW - DAY, NOW, None], _moments())})
    kept = kept_messages(rows, NOW)
    assert (kept.rows["message_id"].to_pylist(), kept.over) == (["b", "c"], 1)


def test_ended_routes_go_if_the_history_has_their_end() -> None:
    """R6: those that still hold, or ended within the window, stay; a key without any goes."""
    old, young, since = NOW - 8 * DAY, NOW - 6 * DAY, NOW - 20 * DAY
    rows = routes(
        ("ended", [(1, since, old)]),
        ("both", [(1, since, old), (2, since, FAR_FUTURE), (1, young, FAR_FUTURE)]),
        ("young", [(3, since, young)]),
        ("unrecorded", [(4, since, old)]),
    )
    oldest = NOW - 7 * DAY
    ended = ended_before(rows, oldest)
    assert ended == {("ended", 1, old), ("both", 1, old), ("unrecorded", 4, old)}
    kept = kept_routes(rows, oldest, {("ended", 1, old), ("both", 1, old), ("young", 3, young)})
    assert kept.over == 2
    assert {row["route_key"]: len(row["targets"]) for row in kept.rows.to_pylist()} == {
        "both": 2,
        "young": 1,
        "unrecorded": 1,
    }
    assert kept_routes(rows, oldest, set()).rows is rows


def test_an_earlier_generation_goes_when_a_later_one_has_taken_over() -> None:
    old = NOW - 40 * DAY

    def left(written: datetime) -> Left:
        return Left(3, 100, written)

    checkpoints = {
        "messages-1": left(old),
        "messages-2": left(NOW),
        "outcomes-1": left(old),
        "routes-1": left(NOW - DAY),
        "routes-2": left(NOW),
        "completion-1": left(old + DAY),  # gone back to
        "completion-2": left(old),
    }
    assert superseded(checkpoints, NOW - 30 * DAY) == ["messages-1"]


def test_only_what_tasks_left_in_directories_of_batches_goes_unnamed() -> None:
    names = {
        f"{BATCH}/_temporary/0/t/part.parquet": True,
        f"{BATCH}/__magic_job-1/part.pending": True,
        f"{BATCH}/date=2026-11-20/part.parquet": False,
        "_checkpoints/messages-1/offsets/0": False,
        "_delta_log/0.json": False,
        "date=2026-11-20/_part.parquet": False,
    }
    files = [FileInfo(name, FileType.File, mtime=NOW - 2 * DAY, size=1) for name in names]
    assert left_by_tasks(files, NOW - DAY) == {name for name, is_left in names.items() if is_left}
    assert left_by_tasks(files, NOW - 3 * DAY) == set()


@contextmanager
def meanwhile(act: Callable[[], None]) -> Iterator[None]:
    """`act` again and again in a thread of its own."""
    ended = Event()

    def run() -> None:
        while not ended.is_set():
            act()

    thread = Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def test_directories_are_found_while_batches_come_and_go(tmp_path: Path) -> None:
    old, young = (f"{number}-{uuid4()}/_temporary/0" for number in (1, 2))
    for name in (old, young, "date=2026-01-01"):
        (tmp_path / name).mkdir(parents=True)
    for name in (old, "date=2026-01-01"):
        os.utime(tmp_path / name, (0, 0))

    def write() -> None:
        batch = tmp_path / f"3-{uuid4()}"
        (batch / "_temporary").mkdir(parents=True)
        (batch / "_temporary").rmdir()
        batch.rmdir()

    with meanwhile(write):
        for _ in range(300):
            assert empty_directories(str(tmp_path), NOW - timedelta(hours=1)) == {old}


def test_bundles_are_looked_for_while_one_is_made(tmp_path: Path) -> None:
    """It is written beside them, and then renamed."""
    parent = tmp_path / SUBMISSIONS
    old = parent / "old"
    old.mkdir(parents=True)
    os.utime(old, (0, 0))
    before = datetime(2000, 1, 1, tzinfo=UTC)

    def make() -> None:
        being_made, made = parent / f".new-{uuid4()}", parent / str(uuid4())
        being_made.mkdir()
        (being_made / "launch.py").touch()
        being_made.rename(made)
        (made / "launch.py").unlink()
        made.rmdir()

    with meanwhile(make):
        for _ in range(300):
            assert [step.task for step in submission_steps(tmp_path, before)] == [f"submission {old.name}"]


def test_paths_are_told_from_the_table_on() -> None:
    for path in ("/d/tables/messages/a/b c", "a/b c", "d/tables/messages/a/b%20c"):
        assert relative("file:///d/tables/messages", path) == "a/b c"
    assert relative("s3://bucket/tables/messages", "s3://bucket/tables/messages/a/b") == "a/b"


def test_tables_never_forget_which_batches_they_have() -> None:
    """A batch that is repeated after any time must be found: transactions do not expire."""
    assert not any("transaction" in name.lower() for name in PROPERTIES | REWRITTEN)


def test_the_report_says_what_was_due_and_what_became_of_it() -> None:
    amount = Amount((TODAY - 2 * DAY, TODAY - DAY), 8640, 1_000_000, 200 << 20)
    done = Result("messages", "compaction", amount, DONE)
    assert report.line(done) == (
        "messages: done: compaction (2026-11-20, 2026-11-21; 1,000,000 rows; 8,640 files, 200 MiB)"
    )
    failed = Result("routes", "vacuum", Amount(files=1, bytes=1536), FAILED, "disk full")
    assert report.line(failed) == "routes: failed: vacuum (1 files, 1.5 KiB): disk full"
    assert report.summary([], dry_run=False) == "nothing to do"
    assert report.summary([done, failed], dry_run=False) == "2 steps, 1 failed"
    assert report.line(Result("presence", "ended rows", Amount(rows=3), PLANNED)).startswith("presence: due: ")
    assert '"success": false' in report.as_json([done, failed], dry_run=False)


def routes(*rows: tuple[str, list[tuple[int, datetime, datetime]]]) -> pa.Table:
    names = ("shard", "effective_from", "effective_until")
    target = pa.struct([("shard", pa.int32()), *((name, _moments()) for name in names[1:])])
    schema = pa.schema([("route_key", pa.string()), ("bucket", pa.int32()), ("targets", pa.list_(target))])
    return pa.Table.from_pylist(
        [
            {"route_key": key, "bucket": 1, "targets": [dict(zip(names, one, strict=True)) for one in targets]}
            for key, targets in rows
        ],
        schema,
    )


def _moments() -> pa.DataType:
    return pa.timestamp("us", "UTC")


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ({"MESSAGE_DAYS": "3"}, r"maintain.message_days = 3 is too short.*0 \(for ever\), or at least .* = 7"),
        ({"QUALITY_DAYS": "30"}, r"maintain.quality_days = 30 is shorter than maintain.message_days = 0"),
        ({"VACUUM_HOURS": "2"}, "maintain.vacuum_hours = 2 is not allowed"),
    ],
)
def test_settings_that_would_lose_what_is_needed_are_refused(override: dict[str, str], said: str) -> None:
    environment = {f"WAYSTATION_MAINTAIN__{name}": value for name, value in override.items()}
    with pytest.raises(SettingsError, match=said):
        load_settings([Path("conf/base.toml")], environment)
