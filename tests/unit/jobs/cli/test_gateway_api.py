"""How the command line asks gateways: addresses, pages, refusals, and where the token goes."""

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from jobs.cli.gateway_api import GatewayApi, api_of, checked_url, find
from jobs.cli.sessions import _ago
from jobs.errors import GatewayApiError
from jobs.output import cell

CLIENTS = [f"c{number:04}" for number in range(2_500)]


class Asked(BaseHTTPRequestHandler):
    """A gateway as far as these tests need one; `seen` are (path, query, token)."""

    seen: list[tuple[str, dict[str, str], str]]

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        self.seen.append((parts.path, query, self.headers.get("Authorization", "")))
        if parts.path == "/moved/admin/session":
            self.send_response(302)
            self.send_header("Location", "/admin/session?client=x")
            self.end_headers()
        elif parts.path == "/admin/sessions":
            behind = [client for client in CLIENTS if client > query.get("after", "")]
            shown = behind[: int(query["limit"])]
            more = shown[-1] if len(behind) > len(shown) else None
            self._answer(200, {"sessions": [{"client": c} for c in shown], "total": len(CLIENTS), "next": more})
        elif query.get("client") == "nobody":
            self._answer(404, {"error": "this gateway has no session of 'nobody'"})
        elif query.get("client") == "refused":
            self._answer(401, {"error": "the admin API requires the token"})
        elif query.get("client") == "strange":
            self._answer(500, "oops")
        else:
            self._answer(200, {"client": query.get("client")})

    def _answer(self, status: int, content: Any) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(content).encode())

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


@pytest.fixture
def url() -> Iterator[str]:
    Asked.seen = []
    with HTTPServer(("127.0.0.1", 0), Asked) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_as_many_pages_as_needed_and_no_more(url: str) -> None:
    found, total = GatewayApi(url).sessions(most=2_200)
    assert ([one["client"] for one in found], total) == (CLIENTS[:2_200], 2_500)
    assert [query.get("after", "") for _, query, _ in Asked.seen] == ["", "c0999", "c1999"]
    assert len(GatewayApi(url).sessions(most=9_999)[0]) == 2_500


def test_a_client_id_of_any_kind_is_asked_for_as_it_is(url: str) -> None:
    for client in ("a/b", "é &?#=%2F", "../../readyz", "\x1b[0m"):
        assert GatewayApi(url).session(client) == {"client": client}


def test_found_at_the_gateways_that_have_it(url: str) -> None:
    assert list(find([GatewayApi(url)], "nobody")) == []
    assert list(find([GatewayApi(url)], "x")) == [(GatewayApi(url), {"client": "x"})]


@pytest.mark.parametrize(
    ("ask", "sentence"),
    [
        (lambda url: GatewayApi(url).session("refused"), "refused the request: the admin API requires the token"),
        (lambda url: GatewayApi(url).session("strange"), "refused the request: 500 Internal Server Error"),
        (lambda url: GatewayApi("http://127.0.0.1:1").session("x"), "does not answer: [Errno 111] Connection refused"),
    ],
)
def test_a_refusal_is_one_sentence_that_names_the_gateway(
    url: str, ask: Callable[[str], object], sentence: str
) -> None:
    with pytest.raises(GatewayApiError) as raised:
        ask(url)
    assert "the gateway at http://127.0.0.1:" in str(raised.value)
    assert sentence in str(raised.value)


def test_the_token_goes_where_it_is_meant_to_and_nowhere_else(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither through a proxy of the environment, nor to where a redirect points."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    GatewayApi(url, "the-token").session("x")
    with pytest.raises(GatewayApiError, match="302"):
        GatewayApi(url + "/moved", "the-token").session("x")
    assert [(path, token) for path, _, token in Asked.seen] == [
        ("/admin/session", "Bearer the-token"),
        ("/moved/admin/session", "Bearer the-token"),
    ]


@pytest.mark.parametrize(
    ("listener", "url"),
    [
        ("127.0.0.1:9464", "http://127.0.0.1:9464"),
        ("0.0.0.0:9464", "http://127.0.0.1:9464"),
        (":::9464", "http://[::1]:9464"),
        ("gateway.example:80", "http://gateway.example:80"),
    ],
)
def test_the_address_of_a_listener_from_this_machine(listener: str, url: str) -> None:
    assert api_of(listener) == url


def test_an_address_on_the_command_line() -> None:
    assert checked_url("https://gateway.example/") == "https://gateway.example"
    for wrong in (
        "gateway.example:9464",
        "ftp://x",
        "http://",
        "http://x/metrics",
        "http://user:word@x",
        "http://[",
        "http://x:y",
        "",
    ):
        with pytest.raises(GatewayApiError, match="is not the address of a gateway"):
            checked_url(wrong)


def test_what_a_client_calls_itself_does_not_speak_to_the_terminal() -> None:
    assert cell("a\x1b]0;title\x07\n[red]b") == r"a\x1b]0;title\x07\n[red]b"
    assert [cell(value) for value in (None, True, False, 3)] == ["", "yes", "", "3"]


def test_times_are_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: 1_000_000.0)
    for seconds, words in (
        (5, "5 s ago"),
        (119, "119 s ago"),
        (150, "2 min ago"),
        (8_000, "2 h ago"),
        (200_000, "2 d ago"),
    ):
        assert _ago(int((1_000_000 - seconds) * 1000)) == words
    assert _ago(None) == ""
