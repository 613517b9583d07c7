"""The console's page of messages: what the ledger says of them, why it says nothing, and that none of it is markup."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.parse import quote

import msgspec
import pytest
from aiohttp import web

from gateway.console import asking_ledger
from gateway.console.messages import NoAnswer, journey, journey_commands, newest
from mqtt.packets import Publish
from schemas.console_settings import ConsoleSettings
from schemas.journey_api import (
    LARGEST_ANSWER,
    Journey,
    JourneyRefusal,
    JourneyStep,
    MessageFound,
    MessagesFound,
)
from tests.unit.gateway.console.test_console_http import HOSTILE, ask
from tests.unit.gateway.host.test_host_connection import Wire, connect
from tests.unit.gateway.observe.observed import Observed, observed, run_real, until

TOKEN = "0123456789abcdef-not-a-real-one"
ID = "01a2242b-34de-74f8-a32a-c1f31487c28c"
AT_US = 1_767_323_045_678_901
NOW = AT_US / 1_000_000 + 60

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def step(at_us: int, step: str = "delivered", who: str = "bob", detail: str = "QoS 1") -> JourneyStep:
    return JourneyStep(at_us=at_us, step=step, who=who, detail=detail)


def rows(page: Any) -> list[list[str]]:
    return [[cell.text for cell in row] for row in page.sections[0].tables[0].rows]


class Ledger:
    """A stand-in for the ledger: `asked` are the requests that came, `answer` is what it answers, a value or a
    handler."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.asked: list[web.Request] = []
        self.status = 200

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request)
        if callable(self.answer):
            response: web.StreamResponse = await self.answer(request)
            return response
        return web.Response(body=msgspec.json.encode(self.answer), status=self.status)


@asynccontextmanager
async def standing_in(ledger: Ledger) -> AsyncIterator[int]:
    """The port of the stand-in."""
    app = web.Application()
    app.add_routes([web.get("/journey", ledger.handle), web.get("/journeys", ledger.handle)])
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


def shown(tmp_path: Path, ledger: Ledger, *paths: str, **settings: Any) -> list[str]:
    """The pages' texts, of a gateway that reads these settings of the ledger."""

    async def scenario() -> list[str]:
        async with (
            standing_in(ledger) as port,
            observed(tmp_path / "home", ledger={"metrics_port": port, **settings}) as here,
        ):
            return [(await ask(here, path)).text for path in paths]

    return run_real(scenario())


def test_a_journey_says_how_long_each_step_took() -> None:
    """Negative where clocks differ; a time that no calendar has is a dash."""
    steps = (step(AT_US, "accepted"), step(AT_US + 1_500), step(AT_US + 1_000), step(AT_US + 3_001_000), step(2**62))
    page = journey(ID, Journey(id=ID, steps=steps, is_cut=True))
    assert [row[:2] for row in rows(page)[:4]] == [
        ["2026-01-02 03:04:05.678", ""],
        ["2026-01-02 03:04:05.680", "1.5 ms"],
        ["2026-01-02 03:04:05.679", "\u22120.5 ms"],
        ["2026-01-02 03:04:08.679", "3 s"],
    ]
    assert rows(page)[4][0] == "–"
    assert "Only the first 5 steps" in page.sections[0].notes[0]
    assert page.sections[-1].code == (f"waystation journey {ID}", f"waystation explain {ID}")


@pytest.mark.parametrize("hostile", [HOSTILE, "$(reboot)", "a b", "-x", "'", "x" * 100])
def test_commands_never_have_what_a_shell_could_run(hostile: str) -> None:
    assert journey_commands(hostile) == ("waystation journey MESSAGE-ID", "waystation explain MESSAGE-ID")


def test_the_newest_messages_lead_to_their_journeys() -> None:
    one = MessageFound(id=ID, accepted_us=AT_US, source="alice", destination="a/b", qos=2)
    page = newest("a/b", "", MessagesFound(messages=(one,), since="2026-01-01"), NOW)
    table = page.sections[0].tables[0]
    assert rows(page) == [[ID, "60 s", "alice", "a/b", "2"]]
    assert table.rows[0][0].href == f"/console/messages?id={ID}"
    assert "since 2026-01-01" in table.caption
    assert [(field.name, field.value) for field in page.search] == [("id", ""), ("topic", "a/b"), ("client", "")]
    assert "try again in a few seconds" in newest("a", "", MessagesFound(messages=()), NOW).sections[0].tables[0].empty
    assert newest("", "", NoAnswer("Why."), NOW).sections[0].notes == ["Why."]


def test_the_ledger_is_asked_what_the_form_says(tmp_path: Path) -> None:
    ledger = Ledger(Journey(id=ID, steps=(step(AT_US), step(AT_US + 2_000, "completed"))))
    (page,) = shown(tmp_path, ledger, f"/console/messages?id=%20{ID}%20&topic=x")
    assert [dict(request.query) for request in ledger.asked] == [{"id": ID}]
    assert "Authorization" not in ledger.asked[0].headers
    assert "2 ms" in page
    assert "completed" in page
    ledger = Ledger(MessagesFound(messages=()))
    shown(tmp_path, ledger, "/console/messages?client=a%26b&topic=t", "/console/messages?client=c", "/console/messages")
    assert [dict(request.query) for request in ledger.asked] == [{"topic": "t", "client": "a&b"}, {"client": "c"}, {}]


def test_an_open_page_does_not_ask_the_ledger_each_time(tmp_path: Path) -> None:
    """An answer is reused for a while; a refusal is not."""
    ledger = Ledger(MessagesFound(messages=()))
    shown(tmp_path, ledger, *["/console/messages?topic=t"] * 3)
    assert len(ledger.asked) == 1
    with patch.object(asking_ledger, "FRESH_S", 0.0):
        shown(tmp_path, ledger, *["/console/messages?topic=t"] * 2)
    assert len(ledger.asked) == 3
    ledger.answer, ledger.status = JourneyRefusal(error="busy"), 503
    shown(tmp_path, ledger, *["/console/messages?topic=t"] * 2)
    assert len(ledger.asked) == 5


def test_what_the_ledger_says_is_never_markup(tmp_path: Path) -> None:
    steps = Journey(id=HOSTILE, steps=(step(AT_US, HOSTILE, HOSTILE, HOSTILE * 30),))
    one = MessageFound(id=HOSTILE, accepted_us=AT_US, source=HOSTILE, destination=HOSTILE, qos=1)
    found = MessagesFound(messages=(one,), since=HOSTILE)
    refused = JourneyRefusal(error=HOSTILE)
    for answer, path in ((steps, "id"), (found, "topic"), (found, "client"), (refused, "id")):
        ledger = Ledger(answer)
        ledger.status = 503 if answer is refused else 200
        (page,) = shown(tmp_path, ledger, f"/console/messages?{path}={quote(HOSTILE)}")
        assert "&lt;img src=x onerror=alert(1)&gt;" in page
        assert "<img" not in page
        assert "\u202e" not in re.sub(r'<input name="\w+" value="[^"]*"', "", page)


@pytest.mark.parametrize(
    ("status", "answer", "words"),
    [
        (404, JourneyRefusal(error="the ledger has no message x: try again"), "The ledger has no message x"),
        (503, JourneyRefusal(error="the search took longer than 6 s"), "The search took longer than 6 s."),
        (401, JourneyRefusal(error="token"), "does not accept this gateway&#39;s token"),
        (403, JourneyRefusal(error="no"), "set ledger.token_file there and here"),
        (404, "Not Found", "it is no ledger, an earlier one, or has ledger.journeys = false"),
        (500, "oops", "answered 500"),
        (302, "elsewhere", "answered 302"),
        (200, "no journey", "is not understood"),
        (200, {"id": "x", "steps": [{"at_us": "soon"}]}, "is not understood"),
        (200, {"id": "x", "steps": [{"at_us": 1, "step": "s", "who": "w", "detail": "d"}] * 201}, "is not understood"),
        (200, {"id": "x", "steps": [{"at_us": 1, "step": "s", "who": "w", "detail": "d" * 1001}]}, "not understood"),
        (200, {"id": "x", "steps": [], "pad": "x" * LARGEST_ANSWER}, "it is longer than"),
    ],
)  # fmt: skip
def test_why_there_is_no_journey_is_told_in_words(tmp_path: Path, status: int, answer: Any, words: str) -> None:
    ledger = Ledger(answer)
    ledger.status = status
    (page,) = shown(tmp_path, ledger, f"/console/messages?id={ID}")
    assert words in page
    assert f"waystation journey {ID}" in page, "the command is named all the same"


def test_a_ledger_that_is_off_or_silent_or_not_there(tmp_path: Path) -> None:
    async def silent(request: web.Request) -> web.Response:
        await asyncio.sleep(60)
        return web.Response()

    ledger = Ledger(silent)
    path = f"/console/messages?id={ID}"
    assert "ledger.journeys = false" in shown(tmp_path, ledger, path, journeys=False)[0]
    assert "more than 200 characters" in shown(tmp_path, ledger, "/console/messages?id=" + "x" * 201)[0]
    assert ledger.asked == []
    assert "configure ledger.metrics_port" in shown(tmp_path, ledger, path, metrics_port=0)[0]
    assert "cannot be reached at 127.0.0.1:1: Connection refused" in shown(tmp_path, ledger, path, metrics_port=1)[0]
    with patch.object(asking_ledger, "TIMEOUT_S", 0.2):
        assert "did not answer" in shown(tmp_path, ledger, path)[0]


def test_the_token_is_sent_and_read_each_time(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN + "\n")
    ledger = Ledger(MessagesFound(messages=()))
    path = "/console/messages"
    shown(tmp_path, ledger, path, token_file=str(file))
    assert ledger.asked[0].headers["Authorization"] == f"Bearer {TOKEN}"
    file.unlink()
    (page,) = shown(tmp_path, ledger, path, token_file=str(file))
    assert "cannot read the token for the ledger" in page
    assert str(file) not in page
    assert len(ledger.asked) == 1


def test_the_ledger_is_found_among_configured_applications(tmp_path: Path) -> None:
    """Which of them it is, their answers show: what the ledger says counts, also if it refuses."""

    async def no_such_path(request: web.Request) -> web.Response:
        raise web.HTTPNotFound

    async def scenario() -> None:
        ledger = Ledger(Journey(id=ID, steps=(step(AT_US, "completed"),)))
        async with standing_in(Ledger(no_such_path)) as router, standing_in(ledger) as port:
            addresses = [f"127.0.0.1:{router}", "127.0.0.1:1", f"127.0.0.1:{port}"]
            console = ConsoleSettings(enabled=True, applications=addresses)
            async with observed(tmp_path / "home", console=console) as here:
                assert "completed" in (await ask(here, f"/console/messages?id={ID}")).text
                ledger.answer, ledger.status = JourneyRefusal(error="no such message"), 404
                assert "No such message." in (await ask(here, "/console/messages?id=x")).text

    run_real(scenario())


def test_clients_and_retained_messages_lead_there(tmp_path: Path) -> None:
    async def is_retained(here: Observed) -> bool:
        return len(here.harness.node.retained) > 0

    async def scenario() -> None:
        async with observed(tmp_path / "home") as here:
            Wire(here.hosts).send(connect("c&d"), Publish("a/b", b"x", 1, packet_id=1, retain=True))
            await until(lambda: is_retained(here))
            assert 'href="/console/messages?client=c%26d"' in (await ask(here, "/console/client?client=c%26d")).text
            page = (await ask(here, "/console/topic?topic=a/b")).text
            assert 'href="/console/messages?topic=a%2Fb"' in page
            assert re.search(r'href="/console/messages\?id=[0-9a-f-]{36}"', page)

    run_real(scenario())
