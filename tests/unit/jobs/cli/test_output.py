"""What is printed is what the data is: no markup, no emoji, nothing that speaks to the terminal, nothing cut."""

import ast
import io
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from jobs.audit.explain import Explanation
from jobs.cli import decisions, sessions, status
from jobs.cli.results import show_table
from jobs.output import Terminal, cell, visible
from jobs.query.ledger_reader import Result
from jobs.text_tables import Column, Form, lay_out
from pipelines.routing.decisions import Judgement
from tests.draw import examples
from tests.unit.jobs.report.report_ledger import NOON

JOBS = Path(__file__).parents[4] / "jobs"
HOSTILE = (
    r"c\[/d]", "[/d]", "[bold]x", "node:battery:7", "\x1b]0;title\x07", "\x1b[31m", "\u202etxt.exe", "\u200b",
    "\x9b31m", "a\nb", "x" * 300,
)  # fmt: skip
NAMES = st.text(max_size=12) | st.sampled_from(HOSTILE)
CONTROLS = [chr(n) for n in (*range(0x20), *range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200B)]


@pytest.fixture(autouse=True)
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def printed(show: Any, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    show()
    return capsys.readouterr().out


@given(st.text())
def test_visible_text_is_printable_and_else_as_it_was(text: str) -> None:
    shown = visible(text)
    assert shown.isprintable()
    assert [c for c in shown if c in text] == [c for c in shown if c in text]
    assert visible(shown) == shown
    if text.isprintable():
        assert shown == text


@pytest.mark.parametrize("character", CONTROLS)
def test_what_speaks_to_a_terminal_is_an_escape(character: str) -> None:
    assert visible(f"a{character}b") == f"a{character.encode('unicode_escape').decode()}b"


def session(name: str) -> dict[str, Any]:
    return {
        "client": name, "state": "connected", "since_ms": 0, "begun_ms": 0, "expiry_s": 0, "shard": 0, "epoch": 1,
        "user": name, "peer": name, "protocol": "mqtt5", "subscriptions": 1, "queued_messages": 0, "unacknowledged": 0,
        "has_will": False, "queue": {"in_memory": 0, "in_spool": 0, "bytes": 0},
        "windows": dict.fromkeys(
            ("to_client", "to_client_maximum", "to_client_released", "from_client_on_way", "from_client_received"), 0
        ),
        "subscription_list": [
            {"filter": name, "qos": 1, "no_local": False, "retain_as_published": True, "retain_handling": 0,
             "identifier": None}
        ],
    }  # fmt: skip


def explanation(name: str) -> Explanation:
    message = {"id": name, "source": name, "destination": name, "qos": 1, "accepted": NOON, "appended": NOON}
    outcome = {"at": NOON, "outcome": "delivered", "client": name, "qos": 1, "shard": 0, "number": 0}
    judgement = Judgement("right", ())
    return Explanation(message | {"partition": 0, "offset": 0}, (name,), (), (0,), judgement, (), (outcome,), None)


def report(name: str) -> dict[str, Any]:
    example = {"message_id": name, "destination": name, "appended": "now", "differences": []}
    return {
        "since": "a", "until": "b", "messages": 1, "right": 0, "differs": 1, "later": 0, "everyone": 0,
        "watermarks": {},
        "kinds": {"missing": 1}, "examples": [example],
    }  # fmt: skip


def stack(name: str) -> dict[str, Any]:
    return {
        "ready": True,
        "processes": [{"name": name, "state": name, "pid": 1, "uptime_s": 1, "restarts": 0, "memory_mb": 1, "cpu": 1}],
        "gateways": [{"url": name, "ready": False, "faults": {"part": name}}],
        "queries": [{"query": name, "part": name, "error": name}],
        "topics": [{"name": name, "partitions": 1, "end_offset": 1, "lag": 1, "lags": {name: 1}}],
        "listeners": {name: name},
    }  # fmt: skip


TABLES = {
    "sessions": lambda name: Terminal().show_table(sessions._COLUMNS, [sessions._cells(session(name))]),
    "session": lambda name: sessions._show(sessions.GatewayApi(name), session(name)),
    "explain": lambda name: decisions._show(explanation(name)),
    "audit": lambda name: decisions._show_report(report(name)),
    "status": lambda name: status._show(stack(name)),
    "query": lambda name: show_table(Result([name, name], [False, True], iter([(name, name)]))),
}


@pytest.mark.parametrize("command", TABLES)
@settings(deadline=None, max_examples=examples(30))
@given(name=NAMES)
def test_names_are_printed_as_they_are(command: str, name: str) -> None:
    """At 80 columns, in cells, headings and titles: the whole of it, but for characters that cannot be seen."""
    written = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdout", written)
        TABLES[command](name)
    shown = written.getvalue()
    assert all(line.isprintable() for line in shown.split("\n"))
    # Prose, such as the fault of a gateway, is wrapped; spaces at the end of a line are not written.
    assert "".join(cell(name).split()) in "".join(shown.split())


@given(
    st.lists(st.lists(NAMES.map(cell), min_size=3, max_size=3), max_size=4), st.integers(10, 120), st.sampled_from(Form)
)
def test_a_table_fits_or_has_another_form(rows: list[list[str]], width: int, form: Form) -> None:
    columns = [Column("first"), Column("second", is_number=True), Column("third", is_prose=True)]
    lines = [line for line, _ in lay_out(columns, rows, width, form)]
    if form is Form.VERTICAL_IF_WIDE and not any(line.startswith("──") and " 1 " in line for line in lines):
        assert all(cell_len(line) <= width for line in lines)
    everything = "".join("".join(lines).split())
    for row in rows:
        for text in row[:2]:
            assert "".join(text.split()) in everything, "never cut"


@given(st.lists(st.text("a 漢🆑", max_size=60), min_size=1, max_size=3), st.integers(20, 60))
def test_prose_is_wrapped_by_terminal_cells(texts: list[str], width: int) -> None:
    """Some characters are two cells wide."""
    prose, rows = [Column("", is_prose=True)], [[text] for text in texts]
    lines = [line for line, _ in lay_out(prose, rows, width, Form.VERTICAL_IF_WIDE)]
    assert max(map(cell_len, lines)) <= width
    assert "".join("".join(lines[2:]).split()) == "".join("".join(texts).split())


def test_forms() -> None:
    columns = ["id", "figure", "words"]
    rows = [["0198c0de-0000-7000-8000-000000000000", "1", "several words that are long"]]
    known = [Column(columns[0]), Column(columns[1], is_number=True), Column(columns[2])]

    def lines(width: int, form: Form) -> list[str]:
        return [line for line, _ in lay_out(known, rows, width, form)]

    assert lines(100, Form.VERTICAL_IF_WIDE)[2] == f"{rows[0][0]}       1  {rows[0][2]}"
    assert lines(60, Form.VERTICAL_IF_WIDE) == [
        "── 1 ──", f"id      {rows[0][0]}", "figure  1", f"words   {rows[0][2]}",
    ]  # fmt: skip
    assert lines(60, Form.SPLIT_IF_WIDE)[2:6:3] == [f"{rows[0][0]}       1", lines(60, Form.SPLIT_IF_WIDE)[5]]
    assert lines(60, Form.TABLE) == lines(100, Form.TABLE)


def test_only_one_module_makes_consoles() -> None:
    """Whoever prints to a terminal does it by jobs.output, where no text is taken for markup."""
    allowed = {"output.py", "text_tables.py", "cli/helptext.py", "demo/progress.py"}
    for file in JOBS.rglob("*.py"):
        tree = ast.parse(file.read_text())
        imported = {
            (one.module or "") if isinstance(one, ast.ImportFrom) else name.name
            for one in ast.walk(tree)
            if isinstance(one, ast.Import | ast.ImportFrom)
            for name in one.names
        }
        called = {ast.unparse(one.func) for one in ast.walk(tree) if isinstance(one, ast.Call)}
        where = file.relative_to(JOBS).as_posix()
        if where not in allowed:
            assert not {name for name in imported if name.split(".")[0] == "rich"}, where
        if where != "output.py":
            assert not called & {"rich.print", "Console", "rich.console.Console"} - _own(where), where
        assert "print" not in called, where


def _own(where: str) -> set[str]:
    """`Console` of the local stack is another thing: where its events go."""
    return {"Console"} if where == "cli/stack.py" else set()
