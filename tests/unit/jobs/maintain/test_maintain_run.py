"""Whole runs of maintenance over real Delta tables, without Spark."""

import os
import time
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from threading import Event

import msgspec
import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from jobs.errors import MaintainError
from jobs.maintain import history
from jobs.maintain.__main__ import PART
from jobs.maintain.__main__ import run as run_application
from jobs.maintain.run import DONE, FAILED, PLANNED, Request, Result, maintain
from jobs.runtime.application import lock_checkpoints
from pipelines.sinks import PROPERTIES
from schemas.settings import Settings, load_settings
from schemas.tables import COMPLETIONS, MESSAGES
from tests.unit.jobs.ledger_tables import append, arrow_schema

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
DAY = timedelta(days=1)
ORPHAN = "9-0198c0de-0000-4000-8000-000000000000"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    base = Path("conf/base.toml")
    return msgspec.structs.replace(load_settings([base], {}), data=str(tmp_path))


def with_kept(settings: Settings, **keys: int) -> Settings:
    return msgspec.structs.replace(settings, maintain=msgspec.structs.replace(settings.maintain, **keys))


def fill(settings: Settings, name: str, day: datetime, count: int) -> None:
    """A row and a file for each of `count` batches of one date."""
    for number in range(count):
        append(settings.tables, name, [{"offset": number, "message_id": str(number), "appended": day}])


def run(settings: Settings, request: Request = Request()) -> list[Result]:  # noqa: B008 - a frozen value
    told: list[Result] = []
    results = maintain(settings, request, Path(settings.data) / "cache", NOW, lambda: False, told.append)
    assert told == results
    return results


def content(directory: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def files(settings: Settings, name: str) -> dict[date, int]:
    found = history.files_by_date(DeltaTable(f"{settings.tables}/{name}"))
    return {day: len(of_day) for day, of_day in sorted(found.items())}


def test_a_dry_run_says_what_a_run_does_and_a_second_run_does_nothing(settings: Settings, tmp_path: Path) -> None:
    fill(settings, MESSAGES.name, NOW - DAY, 6)
    fill(settings, MESSAGES.name, NOW, 6)
    fill(settings, COMPLETIONS.name, NOW - 40 * DAY, 6)
    kept = with_kept(settings, message_days=30)
    before = content(tmp_path)
    planned = run(kept, Request(dry_run=True))
    assert content(tmp_path) == before
    done = run(kept)
    assert [one._replace(state=PLANNED) for one in done] == planned
    assert [(one.place, one.task, one.state, one.amount.rows) for one in done] == [
        ("messages", "compaction", DONE, 6),
        ("completions", "retention", DONE, 6),
    ]
    assert files(settings, MESSAGES.name) == {NOW.date() - DAY: 1, NOW.date(): 6}
    assert files(settings, COMPLETIONS.name) == {}
    assert sorted(DeltaTable(f"{settings.tables}/messages").to_pyarrow_table()["offset"].to_pylist()) == [
        number for number in range(6) for _ in range(2)
    ]
    assert run(kept) == []
    assert [one.task for one in run(kept, Request(("messages",), with_today=True))] == ["compaction"]
    assert files(settings, MESSAGES.name) == {NOW.date() - DAY: 1, NOW.date(): 1}


def test_a_compaction_adds_no_rows_for_those_who_read_on(settings: Settings) -> None:
    """And the batches that the table has are known as before."""
    uri = f"{settings.tables}/messages"
    fill(settings, MESSAGES.name, NOW - DAY, 6)
    last = CommitProperties(app_transactions=[Transaction("a-query", 41)])
    row = dict.fromkeys(arrow_schema(MESSAGES).names) | {"offset": 7, "date": (NOW - DAY).date()}
    write_deltalake(uri, pa.Table.from_pylist([row], arrow_schema(MESSAGES)), mode="append", commit_properties=last)
    run(settings)
    log = sorted(Path(uri, "_delta_log").glob("*.json"))[-1]
    actions = [msgspec.json.decode(line) for line in log.read_text().splitlines()]
    changes = [one[kind]["dataChange"] for one in actions for kind in ("add", "remove") if kind in one]
    assert len(changes) == 8
    assert not any(changes)
    assert DeltaTable(uri).transaction_version("a-query") == 41


def test_a_step_that_fails_is_named_and_keeps_no_other_from_it(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(settings, MESSAGES.name, NOW - DAY, 6)
    fill(settings, COMPLETIONS.name, NOW - DAY, 6)
    compact = history._compact

    def refuse(uri: str, *arguments: object) -> None:
        if uri.endswith("messages"):
            raise OSError("no space left on device")
        compact(uri, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(history, "_compact", refuse)
    found = {one.place: (one.state, one.error) for one in run(settings)}
    assert found == {"messages": (FAILED, "no space left on device"), "completions": (DONE, "")}
    # A log that cannot be read at all.
    for path in Path(settings.tables, "messages", "_delta_log").glob("*.json"):
        path.write_text("{")
    broken = [one for one in run(settings) if one.place == "messages"]
    assert broken
    assert {(one.task, one.state) for one in broken} == {("planning", FAILED)}


def test_vacuum_takes_what_no_version_needs_and_nothing_that_is_young(settings: Settings) -> None:
    """Replaced files stay for those who read an older version, however old they are themselves."""
    table = Path(settings.tables, "messages")
    fill(settings, MESSAGES.name, NOW - DAY, 6)
    left = [
        table / ORPHAN / "date=2026-11-20" / "part-0.parquet",
        table / ORPHAN / "date=2026-11-20" / ".part-0.parquet.crc",
        table / ORPHAN / "_temporary" / "0" / "part-1.parquet",
    ]
    stays = [
        table / "_checkpoints" / "messages-1" / "offsets" / "0",
        table / ORPHAN.replace("9-", "10-") / "date=2026-11-20" / "part-0.parquet",
    ]
    for path in left + stays:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    long_ago = time.time() - 3 * DAY.total_seconds()
    for path in [*table.rglob("*.parquet"), *left, stays[0]]:
        if path != stays[1]:
            os.utime(path, (long_ago, long_ago))
    version = DeltaTable(table).version()
    now = datetime.now(UTC)
    results = maintain(settings, Request(), Path(settings.data), now, lambda: False, lambda _: None)
    assert [(one.task, one.state, one.amount.files) for one in results] == [
        ("compaction", DONE, 6),
        ("vacuum", DONE, len(left)),
    ]
    assert not (table / ORPHAN).exists()
    assert all(path.exists() for path in stays)
    assert DeltaTable(table, version=version).to_pyarrow_table().num_rows == 6
    assert maintain(settings, Request(), Path(settings.data), now, lambda: False, lambda _: None) == []


def test_leftovers_beside_the_tables(settings: Settings, tmp_path: Path) -> None:
    fill(settings, MESSAGES.name, NOW - DAY, 1)
    checkpoints = Path(settings.tables, "messages", "_checkpoints")
    old, present = checkpoints / "messages-1" / "offsets" / "0", checkpoints / "messages-2" / "offsets" / "0"
    bundle = tmp_path / "cache" / "submissions" / "0123456789abcdef"
    for path in (old, present, bundle / "launch.py"):
        path.parent.mkdir(parents=True)
        path.write_text("x")
    long_ago = (NOW - 40 * DAY).timestamp()
    for path in (old, bundle):
        os.utime(path, (long_ago, long_ago))
    assert run(settings, Request(("messages",))) == []
    assert sorted(one.task for one in run(settings)) == ["earlier generation messages-1", f"submission {bundle.name}"]
    assert not old.parent.parent.exists()
    assert present.exists()
    assert not bundle.exists()


def test_the_log_stays_as_long_as_it_is_kept(settings: Settings) -> None:
    """Commits an hour apart, as their files say: a day of them and what came since the last checkpoint."""
    uri = f"{settings.tables}/messages"
    log = Path(uri, "_delta_log")
    for number in range(90):
        fill(settings, MESSAGES.name, NOW, 1)
        for path in log.iterdir():
            at = path.stat().st_mtime - 3600
            os.utime(path, (at, at))
        assert len(list(log.glob("*.json"))) <= 24 + 1 + int(PROPERTIES["delta.checkpointInterval"]), number
    assert DeltaTable(uri).to_pyarrow_table().num_rows == 90


def test_two_at_once_the_second_says_so(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAYSTATION_CACHE", str(tmp_path))
    fill(settings, MESSAGES.name, NOW - DAY, 1)
    with (
        lock_checkpoints(settings.data, PART, "wait"),
        pytest.raises(MaintainError, match="another process is running"),
    ):
        run_application(settings, Request(), Event())
    assert run_application(settings, Request(), Event()) == []


def test_what_is_asked_for_must_be_there(settings: Settings) -> None:
    with pytest.raises(MaintainError, match="because no stack has run there"):
        run(settings)
    fill(settings, MESSAGES.name, NOW, 1)
    with pytest.raises(MaintainError, match=r"unknown table mesages: choose from messages"):
        run(settings, Request(("mesages",)))
