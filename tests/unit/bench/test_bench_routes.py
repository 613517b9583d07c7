"""The routes that routers are measured with."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from deltalake import DeltaTable

from bench.kafka_load import ticking, write_routes
from tests.waiting import wait_for


def as_of(table: DeltaTable) -> datetime:
    (row,) = table.to_pyarrow_table(filters=[("bucket", "=", -1)]).to_pylist()
    assert row["route_key"] == "#"
    return datetime.fromisoformat(str(row["as_of"]))


def routes(table: DeltaTable) -> set[str]:
    """The files of all but the catch-all row."""
    return set(table.file_uris(file_pruning_predicate=[("bucket", "!=", "-1")]))


def test_as_of_moves_and_nothing_else(tmp_path: Path) -> None:
    """A tick rewrites the one file of the catch-all row, as the fold does; routes are known in the future."""
    write_routes(tmp_path, 40, lambda _: [1])
    uri = str(tmp_path / "routes")
    before = DeltaTable(uri)
    with ticking(tmp_path, 0.01):
        wait_for(lambda: DeltaTable(uri).version() >= before.version() + 2, "two ticks", 30)
    first, second = (DeltaTable(uri, version=before.version() + number) for number in (1, 2))
    assert as_of(second) > as_of(first) > datetime.now(UTC)
    assert routes(second) == routes(before)


def test_a_table_that_did_not_move_is_no_measure(tmp_path: Path) -> None:
    write_routes(tmp_path, 1, lambda _: [1])
    with pytest.raises(RuntimeError, match="has not moved"), ticking(tmp_path, 60):
        pass
