"""The routes that routers are measured with."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from deltalake import DeltaTable

from bench.routes import ticking, write_routes
from tests.waiting import wait_for


def as_of(table: DeltaTable) -> datetime:
    (row,) = table.to_pyarrow_table(filters=[("bucket", "=", -1)]).to_pylist()
    assert row["route_key"] == "#"
    return datetime.fromisoformat(str(row["as_of"]))


def test_as_of_moves_and_nothing_else(tmp_path: Path) -> None:
    """A tick rewrites the one file of the catch-all row, as the fold does; routes are known in the future."""
    write_routes(tmp_path, 40, lambda _: [1])
    table = DeltaTable(str(tmp_path / "routes"))
    routes, version = table.file_uris(file_pruning_predicate=[("bucket", "!=", "-1")]), table.version()

    def ticks() -> int:
        table.update_incremental()
        return table.version() - version

    with ticking(tmp_path, 0.01):
        wait_for(lambda: ticks() >= 1, "a tick", 10)
        first = as_of(table)
        wait_for(lambda: ticks() >= 3, "more ticks", 10)
        assert as_of(table) > first > datetime.now(UTC)
    assert sorted(table.file_uris(file_pruning_predicate=[("bucket", "!=", "-1")])) == sorted(routes)


def test_a_table_that_did_not_move_is_no_measure(tmp_path: Path) -> None:
    write_routes(tmp_path, 1, lambda _: [1])
    with pytest.raises(RuntimeError, match="has not moved"), ticking(tmp_path, 60):
        pass
