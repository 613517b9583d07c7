"""Copies are left out of the files of a batch, however large these are."""

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.storage.table_files import TableFiles
from schemas.tables import QUARANTINE

GROUPS, ROWS_A_GROUP, RECORD_BYTES = 32, 8, 16_384
BATCH = "3-00000000-0000-4000-8000-000000000000"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file of a batch as Spark writes it: in groups of rows, so that Spark holds one group in memory."""
    path = tmp_path / BATCH / "date=2026-01-02" / "part-0.parquet"
    path.parent.mkdir(parents=True)
    schema = pa.schema([("offset", pa.int64()), ("record", pa.binary())])
    with pq.ParquetWriter(path, schema) as writer:
        for first in range(0, GROUPS * ROWS_A_GROUP, ROWS_A_GROUP):
            offsets = range(first, first + ROWS_A_GROUP)
            writer.write_table(pa.table([offsets, [os.urandom(RECORD_BYTES) for _ in offsets]], schema=schema))
    return path


def rows_in(directory: Path) -> list[int]:
    return [offset for path in directory.rglob("*.parquet") for offset in pq.read_table(path)["offset"].to_pylist()]


@pytest.mark.parametrize("kept", [{0, 9, 255}, set(), set(range(1, 256))], ids=["few", "none", "all but one"])
def test_the_chosen_rows_are_kept_in_order(tmp_path: Path, file: Path, kept: set[int]) -> None:
    TableFiles(str(tmp_path), QUARANTINE).keep(
        BATCH, ["offset"], lambda rows: pa.array([offset in kept for offset in rows["offset"].to_pylist()])
    )
    assert not file.exists()
    assert rows_in(tmp_path) == sorted(kept)
    footers = [pq.read_metadata(path) for path in tmp_path.rglob("*.parquet")]
    groups = [footer.row_group(n) for footer in footers for n in range(footer.num_row_groups)]
    assert all(group.num_rows and group.column(0).statistics.has_min_max for group in groups), "readers skip files"


def test_leaving_out_copies_takes_the_memory_of_a_group(tmp_path: Path, file: Path) -> None:
    """A batch may have `ledger.max_offsets_per_trigger` rows with payloads."""
    before, pool = pa.default_memory_pool(), pa.proxy_memory_pool(pa.default_memory_pool())
    pa.set_memory_pool(pool)
    try:
        TableFiles(str(tmp_path), QUARANTINE).keep(
            BATCH, ["offset"], lambda rows: pa.array([offset != 0 for offset in rows["offset"].to_pylist()])
        )
        most = pool.max_memory()
    finally:
        pa.set_memory_pool(before)
    assert rows_in(tmp_path) == list(range(1, GROUPS * ROWS_A_GROUP))
    assert 0 < most < GROUPS * ROWS_A_GROUP * RECORD_BYTES / 2
