"""The console over HTTP: who may see it, what it shows, that nothing from clients becomes markup, and its forms."""

import asyncio
import base64
import re
from collections.abc import Mapping
from html import unescape
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.parse import quote

import pytest
from aiohttp import web

from gateway.console import asking, facts
from gateway.console.applications import SAMPLES
from gateway.console.render import ASSETS, PAGES
from mqtt.packets import Publish, Subscribe, Subscription
from schemas.console_settings import ConsoleSettings
from tests.unit.gateway.host.test_host_connection import Wire, connect
from tests.unit.gateway.observe.observed import Observed, observed, run_real, until
from tests.unit.gateway.shard.home_harness import turn

TOKEN = "0123456789abcdef-not-a-real-one"
HOSTILE = '"><img src=x onerror=alert(1)>\u202e'


class Answer:
    def __init__(self, status: int, headers: Mapping[str, str], text: str) -> None:
        self.status, self.headers, self.text = status, headers, text


async def ask(here: Observed, path: str, method: str = "GET", **options: object) -> Answer:
    async with here.http.request(method, here.url + path, allow_redirects=False, **options) as answer:  # type: ignore[arg-type]
        return Answer(answer.status, answer.headers, await answer.text())


def shown_token(scheme: str = "Basic") -> dict[str, str]:
    encoded = TOKEN if scheme == "Bearer" else base64.b64encode(f"operator:{TOKEN}".encode()).decode()
    return {"Authorization": f"{scheme} {encoded}"}


def token_file(tmp_path: Path) -> str:
    file = tmp_path / "token"
    file.write_text(TOKEN)
    return str(file)


EVERYTHING = [
    *(path for path, _ in PAGES),
    "/console/client?client=c",
    "/console/topic?topic=a",
    "/console/nothing",
    *(f"/console/{asset}" for asset in ASSETS),
]


def test_every_answer_has_the_headers(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with observed(tmp_path) as here:
            Wire(here.hosts).send(connect("c"))
            await turn()
            for path in EVERYTHING:
                answer = await ask(here, path)
                assert answer.status == (404 if "nothing" in path or "topic=" in path else 200), path
                assert answer.headers["Cache-Control"] == "no-store"
                assert answer.headers["X-Content-Type-Options"] == "nosniff"
                policy = answer.headers["Content-Security-Policy"]
                assert "default-src 'none'" in policy
                assert "frame-ancestors 'none'" in policy
                assert "unsafe" not in policy
                if answer.headers["Content-Type"].startswith("text/html"):
                    assert "<h1>" in answer.text
                    assert "gateway-1" in answer.text
                    assert "version 1.2.3" in answer.text
                    assert re.search(r"<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC</time>", answer.text)
                    ours = r"(?! src=\"/console/(console|plots|uPlot)\.js\" defer></script>)"
                    assert not re.search(rf"<script{ours}|style=|\son\w+=", answer.text)
                    assert not re.search(r'(src|href|action)="(?!/console)', answer.text)

    run_real(scenario())


def test_only_this_machine_sees_it_without_a_token(tmp_path: Path) -> None:
    """A page under another name, or a proxy, does not; as for the admin API."""

    async def scenario() -> None:
        async with observed(tmp_path) as here:
            for headers in ({"Host": "strange.example"}, {"X-Forwarded-For": "192.0.2.7"}):
                for path in EVERYTHING:
                    answer = await ask(here, path, headers=headers)
                    assert answer.status == 403
                    assert "<" not in answer.text
            Wire(here.hosts).send(connect("c"))
            await turn()
            assert "<form" not in (await ask(here, "/console/client?client=c")).text, "it changes nothing"
            own = {"Origin": here.url}
            answer = await ask(here, "/console/kick?client=c", "POST", headers=own, data={"token": "x"})
            assert answer.status == 403
            assert here.harness.home.session("c") is not None

    run_real(scenario())


def test_the_token_is_needed_where_one_is_configured(tmp_path: Path) -> None:
    """A browser is asked for it; programs show it as to the admin API, which takes no Basic credentials."""

    async def scenario() -> None:
        async with observed(tmp_path, admin_token_file=token_file(tmp_path)) as here:
            for path in EVERYTHING:
                answer = await ask(here, path)
                assert answer.status == 401
                assert answer.headers["WWW-Authenticate"].startswith("Basic ")
            refused = ("waystation_admin_requests_refused_total", ())
            assert (await here.samples())[refused] == 0, "that was only the browser's question"
            for scheme in ("Basic", "Bearer"):
                assert (await ask(here, "/console", headers=shown_token(scheme))).status == 200
            wrong = {"Authorization": "Basic " + base64.b64encode(b"operator:wrong").decode()}
            for headers in (wrong, {"Authorization": "Basic %%%"}, {"Authorization": "Basic"}):
                assert (await ask(here, "/console", headers=headers)).status == 401
            assert (await here.samples())[refused] == 3
            assert (await here.get("/admin/sessions", headers=shown_token()))[0] == 401

    run_real(scenario())


def test_a_client_is_ended_by_a_form_of_the_console_only(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with observed(tmp_path, admin_token_file=token_file(tmp_path)) as here:
            wire = Wire(here.hosts).send(connect(HOSTILE))
            await turn()
            page = await ask(here, f"/console/client?client={quote(HOSTILE)}", headers=shown_token())
            forms = re.findall(
                r'<form class="action" method="post" action="([^"]*)">\s*<input[^>]*value="(\w+)"', page.text
            )
            (kick, token), (end, end_token) = [(unescape(path), value) for path, value in forms]
            own = shown_token() | {"Origin": here.url}
            for headers, given in (
                (shown_token(), token),
                (own | {"Origin": "http://evil.example"}, token),
                (own | {"Sec-Fetch-Site": "cross-site"}, token),
                (own, end_token),
                (own, ""),
            ):
                assert (await ask(here, kick, "POST", headers=headers, data={"token": given})).status == 403
            assert (await ask(here, kick, "POST", headers={"Origin": here.url}, data={"token": token})).status == 401
            assert (await ask(here, kick, headers=own)).status == 404, "not by GET"
            assert not wire.is_closed
            answer = await ask(here, kick, "POST", headers=own, data={"token": token})
            assert answer.status == 303
            assert "The client was disconnected" in (await ask(here, answer.headers["Location"], headers=own)).text
            assert wire.is_closed
            assert here.harness.home.session(HOSTILE) is not None
            answer = await ask(here, end, "POST", headers=own, data={"token": end_token})
            assert (answer.status, answer.headers["Location"]) == (303, "/console/clients")
            assert here.harness.home.session(HOSTILE) is None
            assert (await ask(here, end, "POST", headers=own, data={"token": end_token})).status == 404

    run_real(scenario())


def test_what_clients_choose_is_shown_and_never_markup(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with observed(tmp_path) as here:
            wire = Wire(here.hosts).send(connect(HOSTILE), Subscribe(1, [Subscription(f"{HOSTILE}/#", 1)]))
            await turn()
            wire.send(Publish(HOSTILE, HOSTILE.encode(), 1, packet_id=1, retain=True))
            await until(lambda: _is_retained(here))
            for path in (
                "/console/clients",
                f"/console/client?client={quote(HOSTILE)}",
                "/console/topics",
                f"/console/topic?topic={quote(HOSTILE)}",
                f"/console/clients?prefix={quote(HOSTILE)}&state={quote(HOSTILE)}",
                f"/console/topics?prefix={quote(HOSTILE)}",
                f"/console/client?client={quote(HOSTILE)}&done={quote(HOSTILE)}",
                f"/console/{quote(HOSTILE)}",
            ):
                answer = await ask(here, path)
                assert "<img" not in answer.text, path
                assert "\u202e" not in re.sub(r'<input name="prefix" value="[^"]*"', "", answer.text), path
                if answer.status == 200:
                    assert "&lt;img src=x onerror=alert(1)&gt;" in answer.text, path

    run_real(scenario())


async def _is_retained(here: Observed) -> bool:
    return len(here.harness.node.retained) > 0


def test_values_are_shown_only_to_those_who_may_read_them(tmp_path: Path) -> None:
    """With the token; or where every client may read every topic anyway."""

    async def values(**gateway: Any) -> tuple[bool, bool]:
        async with observed(tmp_path / str(len(gateway)), **gateway) as here:
            Wire(here.hosts).send(connect("c"), Publish("a", b"the-value", 1, packet_id=1, retain=True))
            await until(lambda: _is_retained(here))
            pages = [
                await ask(here, path, headers=shown_token()) for path in ("/console/topics", "/console/topic?topic=a")
            ]
            listed, alone = ("the-value" in page.text for page in pages)
            return listed, alone

    async def scenario() -> None:
        async with observed(tmp_path / "settings") as here:
            gateway = here.harness.settings().gateway
        rules = type(gateway.authorization)(file=str(tmp_path / "acl.toml"), default="deny")
        assert await values() == (True, True)
        assert await values(authorization=rules) == (False, False)
        assert await values(authorization=rules, admin_token_file=token_file(tmp_path)) == (True, True)

    run_real(scenario())


def test_clients_and_topics_are_listed_in_pages(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with observed(tmp_path) as here:
            wires = [Wire(here.hosts).send(connect(f"b/{n}")) for n in range(5)]
            await turn()
            for number, wire in enumerate(wires):
                wire.send(Publish(f"t/{number}", b"x", 1, packet_id=1, retain=True))
            wires[0].lose()
            await until(lambda: _are_retained(here, 5))
            for path, names in (("/console/clients?prefix=b/", "b/"), ("/console/topics?prefix=t/", "t/")):
                with patch.object(facts, "ROWS", 2):
                    found, pages = [], 0
                    while path:
                        text = (await ask(here, path)).text
                        found += re.findall(rf"<bdi>({names}\d)</bdi></a>", text)
                        pages += 1
                        more = re.search(r'<a href="([^"]*)">Next page</a>', text)
                        path = unescape(more[1]) if more else ""
                assert found == [f"{names}{n}" for n in range(5)]
                assert pages == 3
            offline = (await ask(here, "/console/clients?state=offline")).text
            assert re.findall(r"<bdi>(b/\d)</bdi></a>", offline) == ["b/0"]

    run_real(scenario())


async def _are_retained(here: Observed, count: int) -> bool:
    return len(here.harness.node.retained) == count


def test_the_part_that_is_updated_is_no_whole_page(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with observed(tmp_path) as here:
            here.kafka_fault = "no broker <b>"
            part = (await ask(here, "/console", headers={"X-Console-Part": "live"})).text
            assert part.lstrip().startswith('<p class="banner">')
            assert "Not ready</b> kafka: no broker &lt;b&gt;" in part
            assert "<html" not in part

    run_real(scenario())


def test_while_the_gateway_starts_only_the_overview_is_there(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with observed(tmp_path) as here:
            here.readiness.phase = "starting: sessions are being recovered"
            assert "Not ready</b> serving: starting" in (await ask(here, "/console")).text
            assert (await ask(here, "/console/clients")).status == 503

    run_real(scenario())


def test_slow_consumers_and_largest_queues(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with observed(tmp_path) as here:
            away = Wire(here.hosts).send(connect("away"), Subscribe(1, [Subscription("a", 1)]))
            slow = connect("slow")
            slow.properties["receive_maximum"] = 1  # type: ignore[index]
            Wire(here.hosts).send(slow, Subscribe(1, [Subscription("a", 1)]))
            await until(lambda: _subscribed(here, 2))
            away.lose()
            sender = Wire(here.hosts).send(connect("sender"))
            await turn()
            sender.send(*(Publish("a", b"x" * 100, 1, packet_id=n) for n in range(1, 4)))
            await until(lambda: _queued(here, 5))
            text = (await ask(here, "/console/queues")).text
            first, second = text.split("<h2>Largest queues</h2>")
            assert re.findall(r"<bdi>(\w+)</bdi></a>", first) == ["slow"]
            assert re.findall(r"<bdi>(\w+)</bdi></a>", second) == ["away", "slow"]

    run_real(scenario())


async def _subscribed(here: Observed, count: int) -> bool:
    return sum(len(s.subscriptions) for shard in here.harness.home.states for s in shard.sessions.values()) == count


async def _queued(here: Observed, count: int) -> bool:
    return sum(s.queued for shard in here.harness.home.states for s in shard.sessions.values()) == count


def test_routers_and_ledger_say_how_they_are(tmp_path: Path) -> None:
    """Or the page says why they do not: nobody there, too slow, too much."""

    async def readyz(request: web.Request) -> web.Response:
        parts = {"application": {"ready": True}, "<i>routing": {"ready": False, "detail": "failed: <b>"}}
        return web.json_response({"ready": False, "parts": parts}, status=503)

    async def metrics(request: web.Request) -> web.Response:
        assert request.query.getall("name[]") == list(SAMPLES)
        lags = "\n".join(f'waystation_query_lag_records{{query="<i>routing",topic="{n}"}} {n}' for n in (7, 42))
        batch = 'waystation_query_batch_seconds_{}{{query="<i>routing"}} {}\n'
        pause = 'waystation_router_pause_seconds_{}{{router="active"}} {}\n'
        both = "".join(each.format(*of) for each in (batch, pause) for of in (("sum", 30), ("count", 3)))
        return web.Response(text=f"{lags}\n{both}".replace('"active"} 30', '"active"} 0.75'))

    async def silent(request: web.Request) -> web.Response:
        await asyncio.sleep(60)
        return web.Response()

    async def endless(request: web.Request) -> web.Response:
        return web.Response(body=b"x" * (asking.LARGEST_ANSWER + 1))

    async def scenario() -> None:
        runners, addresses = [], []
        for handlers in ((readyz, metrics), (silent, metrics), (endless, metrics)):
            app = web.Application()
            app.add_routes([web.get("/readyz", handlers[0]), web.get("/metrics", handlers[1])])
            runner = web.AppRunner(app, shutdown_timeout=0.1)
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            runners.append(runner)
            addresses.append(f"127.0.0.1:{runner.addresses[0][1]}")
        console = ConsoleSettings(enabled=True, applications=[*addresses, "127.0.0.1:1"])
        async with observed(tmp_path, console=console) as here:
            text = (await ask(here, "/console/applications")).text
            first, second, third, fourth = text.split("<h2>")[1:]
            assert "&lt;i&gt;routing" in first
            assert "failed: &lt;b&gt;" in first
            assert '<td class="number">42</td>' in first
            assert '<td class="number">10 s</td>' in first
            assert '<td class="number">250 ms</td>' in first, "the pause of the query router-active"
            assert "router-active" in first
            assert "it did not answer within 2 s" in second
            assert "answered more than" in third
            assert "cannot connect: Connection refused" in fourth
            assert "<i>" not in text
        for runner in runners:
            await runner.cleanup()

    run_real(scenario())


def test_the_settings_may_turn_it_off(tmp_path: Path) -> None:
    async def scenario() -> None:
        off = ConsoleSettings(enabled=False, applications=[])
        async with observed(tmp_path, console=off) as here, here.http.get(here.url + "/console") as answer:
            assert answer.status == 404

    run_real(scenario())


@pytest.mark.parametrize("asset", ASSETS)
def test_assets_name_no_host(asset: str) -> None:
    """Nothing is loaded from anywhere else."""
    text = (Path(asking.__file__).parent / asset).read_text()
    names = r"www\.w3\.org/2000/svg|github\.com/leeoniya/uPlot \("  # of a namespace, and in uPlot's first comment
    assert not re.search(rf"https?://(?!{names})|@import|url\(", text)


def test_the_console_has_the_colours_of_the_report() -> None:
    """They look like one product."""
    root = Path(__file__).parents[4]
    ours, theirs = (
        re.findall(r"(--[\w-]+): (#\w+);", (root / file).read_text())
        for file in ("gateway/console/console.css", "jobs/report/page.css")
    )
    assert theirs
    assert set(theirs) <= set(ours)
