"""No room on the disk of tables and checkpoints: queries fail and are tried again, and then all is there once."""

import os
import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from jobs.ledger.__main__ import Supervised
from jobs.observe.progress import first_line
from pipelines.sinks import RoutesTable
from pipelines.storage.table_files import TableFiles
from tests import draw
from tests.conftest import LocalBroker
from tests.integration.jobs.ledger_harness import LedgerHarness
from tests.waiting import wait_for

TABLES = ("routes", "messages")
"""One that folds and one that appends: deltalake commits for both."""
NAMES = (*TABLES, "completion", "presence_state")
"""And one with a state of Spark's own, and one with a state of ours."""


LIMITED = threading.Lock()
"""Queries write from threads of their own: a second one would take the first one's limit for what was there before."""


@contextmanager
def no_room(process: int) -> Iterator[None]:
    """No file of a process may grow: every write fails, as on a full disk, though with another number (EFBIG)."""
    with LIMITED:
        soft, hard = resource.prlimit(process, resource.RLIMIT_FSIZE)
        resource.prlimit(process, resource.RLIMIT_FSIZE, (0, hard))
        try:
            yield
        finally:
            resource.prlimit(process, resource.RLIMIT_FSIZE, (soft, hard))


@draw.long_test
def test_after_room_is_made_everything_is_there_once(
    spark: SparkSession, broker: LocalBroker, unique_prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R3, R4: first there is room for nothing; then for files and offsets, not for the tables' logs; then for all."""
    harness = LedgerHarness(spark, broker, unique_prefix, tmp_path)
    harness.say_round()
    assert harness.run(NAMES) == {}
    harness.say_round()
    failed: dict[str, str] = {}
    starts = harness.starts()
    queries = [Supervised(spark, name, starts[name], 2.0, failed.__setitem__) for name in NAMES]

    def all_failed() -> bool:
        for query in queries:
            if query.name not in failed:
                query.watch(0.0)
        return failed.keys() == set(NAMES)

    jvm = spark._jvm.java.lang.ProcessHandle.current().pid()  # type: ignore[union-attr]
    with no_room(jvm):
        wait_for(all_failed, "all fail")
    assert [query.pause_s for query in queries] == [2.0] * len(NAMES)
    with monkeypatch.context() as patch:
        for kind, name in ((TableFiles, "commit"), (RoutesTable, "write")):
            patch.setattr(kind, name, refused(getattr(kind, name)))
        refusals = harness.run(TABLES)
    assert refusals.keys() == set(TABLES)
    assert all("File too large" in first_line(error) for error in refusals.values()), refusals
    try:
        for query in queries:
            query.watch(2.0)
            assert query.query is not None
            query.query.processAllAvailable()
    finally:
        for query in queries:
            query.stop()
    assert harness.run(["messages"]) == {}, "what presence has told meanwhile"
    expected, found = harness.expected(), harness.found()
    assert {name: found[name] for name in NAMES} == {name: expected[name] for name in NAMES}


def refused(write: Any) -> Any:
    def without_room(*arguments: Any, **named: Any) -> Any:
        with no_room(os.getpid()):
            return write(*arguments, **named)

    return without_room
