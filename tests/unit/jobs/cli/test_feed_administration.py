"""`waystation feed list`, `status`, `switch` and `replay`: what they ask of a gateway, and what they show (S1)."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from jobs.cli.main import application
from jobs.errors import FeedCommandError

PLACE = {"slot": "active", "adapter": "roof", "machine": "m1", "zone": "north"}
STATE: dict[str, Any] = {
    "name": "radar",
    "state": "single",
    "active": PLACE,
    "backup": None,
    "reason": "nobody \x1b[31m writes",
    "revision": 3,
    "adapters": [],
    "subscribers": 2,
}
ADAPTER = {
    "name": "roof",
    "slot": "active",
    "state": "up",
    "alive": True,
    "reason": "",
    "machine": "m1",
    "zone": "north",
    "source": "Mode S from radar",
    "messages": 7,
    "malformed": 1,
    "streams": {"radar@0": {"sequence": 6, "read_us": 1}},
}
DETAIL = STATE | {
    "adapters": [ADAPTER],
    "assignment": {"active": "active", "revision": 3, "reason": "maintenance", "by": "http-ann"},
    "pair": None,
    "lag": [{"stream": "radar@0", "lag": 4}],
    "advice": ["move one"],
}


class Answers(BaseHTTPRequestHandler):
    """A gateway that knows one feed; `asked` has method, path, user and body of each request."""

    asked: list[tuple[str, str, str | None, Any]]
    feeds: tuple[Any, ...] = (STATE,)

    def do_GET(self) -> None:
        known = {"/v1/feeds": {"feeds": self.feeds}, "/v1/feeds/radar": DETAIL}
        self._answer(known.get(self.path))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self._answer({"active": body["active"], "revision": 4} if self.path.endswith("/switch") else None, body)

    def _answer(self, content: Any, body: Any = None) -> None:
        self.asked.append((self.command, self.path, self.headers["Authorization"], body))
        refusal = {"detail": "there is no such feed"}
        raw = json.dumps(refusal if content is None else content).encode()
        self.send_response(404 if content is None else 200)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *_: Any) -> None:
        pass


class Cli:
    def __init__(self, port: int, asked: list[tuple[str, str, str | None, Any]]) -> None:
        self._port, self.asked = port, asked

    def run(self, *words: str, at: bool = True) -> Result:
        address = ["--address", f"127.0.0.1:{self._port}"] if at else []
        return CliRunner().invoke(application(["feed"]), ["feed", *words, *address], env={"COLUMNS": "200"})


@pytest.fixture
def cli() -> Iterator[Cli]:
    asked: list[tuple[str, str, str | None, Any]] = []
    server = HTTPServer(("127.0.0.1", 0), type("Handler", (Answers,), {"asked": asked}))
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield Cli(server.server_port, asked)
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_list_without_feeds_says_so(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Answers, "feeds", ())
    shown = cli.run("list")
    assert shown.exit_code == 0
    assert shown.stdout == "there are no feeds that you may read: feeds.names names those of the platform\n"
    assert json.loads(cli.run("list", "--format", "json").stdout) == {"feeds": []}


def test_feeds_are_shown_as_a_table_and_as_json(cli: Cli) -> None:
    """S1: what an adapter says cannot control the terminal."""
    shown = cli.run("list").stdout
    assert "roof (active, on m1, north)" in shown
    assert "\x1b" not in shown
    assert json.loads(cli.run("list", "--format", "json").stdout) == {"feeds": [STATE]}
    shown = cli.run("status", "radar").stdout
    for text in ("single: nobody", "active, revision 3 by http-ann", "maintenance", "radar@0: 4", "move one", "Mode S"):
        assert text in shown, text
    assert json.loads(cli.run("status", "radar", "--format", "json").stdout)["lag"] == DETAIL["lag"]


def test_a_switch_says_who_and_why(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAYSTATION_PASSWORD", "secret")
    done = cli.run("switch", "radar", "backup", "--reason", "maintenance", "--user", "ann")
    assert "the backup stream of radar is the active one; revision 4" in done.stdout
    [(method, path, credentials, body)] = cli.asked
    assert (method, path, credentials) == ("POST", "/v1/feeds/radar/switch", "Basic YW5uOnNlY3JldA==")
    assert body == {"active": "backup", "reason": "maintenance"}
    assert cli.run("switch", "radar", "third").exit_code == 2


def test_a_refusal_is_one_sentence(cli: Cli) -> None:
    done = cli.run("status", "a/b")
    assert isinstance(done.exception, FeedCommandError)
    assert "there is no such feed" in str(done.exception)
    assert cli.asked[0][1] == "/v1/feeds/a%2Fb"


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--sequence", "3"),
        ("--from", "yesterday"),
        ("--sequence", "9", "--stream", "s@0", "--to", "3"),
        ("--sequence", "9", "--stream", "s@0", "--to", "2026-01-01"),
        ("--from", "2026-01-01", "--to", "9x"),
    ],
)
def test_wrong_bounds_of_a_replay_are_refused(cli: Cli, words: tuple[str, ...]) -> None:
    assert cli.run("replay", "radar", *words, at=False).exit_code == 2
