"""A command in a process of its own ends: after a query whose files are still being read ahead, and when whoever reads
its output has gone. `make soak` runs a thousand queries of each kind."""

import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from jobs.output import BROKEN_PIPE
from tests import draw
from tests.unit.jobs.ledger_tables import append
from tests.unit.jobs.report.report_ledger import NOON, message

RUNS = draw.times(3, 1000)
GUIDE = Path(__file__).parents[3] / "docs" / "analysts.md"
COMMAND = [sys.executable, "-m", "jobs.cli.main"]
FEW = "SELECT id, destination FROM messages LIMIT 5"
ONE = "SELECT id, destination FROM messages WHERE destination LIKE '%/raw' LIMIT 1"
MANY = """
import os, signal, sys
{imports}
failed = []
for _ in range({runs}):
    child = os.fork()
    if not child:  # it ends as any program does: this loop is its last statement
        signal.alarm(60)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        {statement}
        break
    status = os.waitpid(child, 0)[1]
    failed += [status] if status else []
else:
    print("failed:", failed)
"""
"""Runs a statement in as many processes, each of which ends by itself; importing once makes them cheap."""
COMMANDS_IMPORTS = "import duckdb, deltalake, pyarrow.dataset, pyarrow.fs, jobs.cli.main, jobs.cli.ledger"
DUCKDB_IMPORTS = "import duckdb, deltalake, pyarrow.dataset, pyarrow.fs"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Many files, as a ledger has, so that there is something to read ahead."""
    data = tmp_path_factory.mktemp("data")
    for day in range(30):
        at = NOON + timedelta(days=day)
        rows = [message(f"{day}-{n}", at, destination=f"a/{n}/{'raw' if n % 7 == 3 else 'x'}") for n in range(300)]
        append(str(data / "tables"), "messages", rows)
    return data


def run_many(imports: str, statement: str, directory: Path) -> None:
    """Every process ends with status 0 and has nothing to complain of."""
    script = MANY.format(imports=imports, runs=RUNS, statement=statement)
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=directory, env=environment()
    )
    assert (ended.stdout, ended.stderr, ended.returncode) == ("failed: []\n", "", 0)


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(GUIDE.parents[1])}


@pytest.mark.timeout(300 + 10 * RUNS)
@pytest.mark.parametrize("sql", [FEW, ONE])
def test_a_query_with_a_limit_ends(data: Path, sql: str) -> None:
    arguments = ["waystation", "--data", str(data), "query", sql]
    run_many(COMMANDS_IMPORTS, f"sys.argv = {arguments!r}; jobs.cli.main.main()", data)


@pytest.mark.timeout(300 + 10 * RUNS)
@pytest.mark.parametrize("sql", [FEW, ONE])
def test_the_documented_way_of_duckdb_ends(data: Path, sql: str) -> None:
    example = GUIDE.read_text().partition("# DuckDB\n")[2].partition("print(")[0]
    assert "to_pyarrow_dataset(filesystem=" in example
    written = example.replace(".waystation/tables", str(data / "tables"))
    code = f'{written}\nprint(duckdb.sql("{sql}"))'
    run_many(DUCKDB_IMPORTS, f"exec({code!r}, {{}})", data)


COMMANDS = {
    "help": ["--help"],
    "table": ["query", "--limit", "0", "FROM range(50000)"],
    "csv": ["query", "--format", "csv", "FROM range(500000)"],
    "json": ["query", "--format", "json", "FROM range(500000)"],
    "one line": ["query", "SELECT 1"],
    "doctor": ["doctor"],
}


@pytest.mark.parametrize("arguments", COMMANDS.values(), ids=COMMANDS)
def test_a_command_ends_quietly_when_its_reader_goes(data: Path, arguments: list[str]) -> None:
    """As `| head -1`, and as a reader that has gone before there is a line."""
    reading, writing = os.pipe()
    os.close(reading)
    ended = subprocess.run(
        [*COMMAND, "--data", str(data), *arguments],
        stdout=writing, stderr=subprocess.PIPE, env=environment(), timeout=120,
    )  # fmt: skip
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (BROKEN_PIPE, b"")


def test_as_the_shell_shows_it(data: Path) -> None:
    command = f"{sys.executable} -m jobs.cli.main --data {data} query --limit 0 'FROM range(100000)'"
    line = f"{command} | head -1; echo ${{PIPESTATUS[@]}}"
    ended = subprocess.run(["bash", "-c", line], capture_output=True, text=True, env=environment(), timeout=120)
    assert (ended.stdout.split(), ended.stderr) == (["range", "141", "0"], "")


def test_a_full_disk_is_one_sentence(data: Path) -> None:
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [*COMMAND, "query", "SELECT 1"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
            timeout=120,
        )
    assert (ended.returncode, ended.stderr) == (
        1,
        "cannot write the output: No space left on device; free some space\n",
    )
