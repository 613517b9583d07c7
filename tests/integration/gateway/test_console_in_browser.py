"""The console in a real browser: light and dark, kept up to date, by keyboard and form, with hostile names; without
JavaScript too."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import pytest
from aiohttp import web

from mqtt.packets import Publish, Subscribe, Subscription
from schemas.journey_api import Journey, JourneyStep, MessageFound, MessagesFound
from tests.integration.jobs.browser import Tab, tab
from tests.unit.gateway.host.test_host_connection import Wire, connect
from tests.unit.gateway.observe.observed import Observed, observed, observed_in_cluster, run_real
from tests.unit.gateway.shard.home_harness import turn
from tests.waiting import wait_for

ONLY_HERE = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
HOSTILE = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
TOKEN = "0123456789abcdef-not-a-real-one"
PATIENCE_S = 30.0
PLOTS = ("PUBLISH in", "PUBLISH out", "Bytes", "Refusals", "Connections", "In flight to Kafka", "Processor")
TEXT = "document.body?.innerText ?? ''"
"""Of a page that may be about to be replaced by another."""
GROUND = "getComputedStyle(document.body).backgroundColor"


@asynccontextmanager
async def busy(directory: Path, **gateway: Any) -> AsyncIterator[Observed]:
    """A gateway with a client whose every name is hostile, and its retained message."""
    async with observed(directory, **gateway) as here:
        wire = Wire(here.hosts).send(connect(HOSTILE), Subscribe(1, [Subscription(f"{HOSTILE}/#", 1)]))
        await turn()
        wire.send(Publish(HOSTILE, HOSTILE.encode(), 1, packet_id=1, retain=True))
        await turn()
        yield here


def in_browser(directory: Path, look: Callable[[Tab, str, Callable[[str], None]], None], **gateway: Any) -> None:
    """Runs `look` with a tab, the console's address, and a function that connects one more client."""

    async def scenario() -> None:
        async with busy(directory / "home", **gateway) as here:
            loop = asyncio.get_running_loop()

            def arrive(client: str) -> None:
                loop.call_soon_threadsafe(lambda: Wire(here.hosts).send(connect(client)))

            def run() -> None:
                with tab(directory / "profile", ONLY_HERE) as one:
                    look(one, here.url, arrive)

            await asyncio.to_thread(run)

    run_real(scenario())


@pytest.mark.timeout(180)
def test_pages_in_light_and_dark_with_hostile_names(tmp_path: Path) -> None:
    """Nothing is loaded from elsewhere, nothing that a client has written runs, and nothing breaks the policy."""

    def look(one: Tab, url: str, _: Callable[[str], None]) -> None:
        paths = ["/console", "/console/shards", "/console/clients", "/console/queues", "/console/topics"]
        paths += [
            "/console/refusals",
            f"/console/client?client={quote(HOSTILE)}",
            f"/console/topic?topic={quote(HOSTILE)}",
        ]
        for path in paths:
            one.open(url + path)
            assert one.run("document.images.length") == 0
            assert one.run("document.title") != "owned"
            assert "Ready" in one.run("document.querySelector('.banner').innerText")
            assert one.run("document.scripts.length") == (3 if path == "/console" else 1)
            if "=" in path:
                assert "<img src=x onerror=" in one.run("document.querySelector('h1').innerText")
        grounds = set()
        for scheme in ("light", "dark"):
            one.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
            grounds.add(one.run(GROUND))
        assert grounds == {"rgb(255, 255, 255)", "rgb(13, 17, 23)"}
        assert [request for request in one.requests if not request.startswith(f"{url}/console")] == []
        assert one.complaints == []

    in_browser(tmp_path, look)


@pytest.mark.timeout(180)
def test_a_page_follows_what_happens(tmp_path: Path) -> None:
    """A client that comes appears without a click, and what the operator types meanwhile stays; so does the focus."""

    def look(one: Tab, url: str, arrive: Callable[[str], None]) -> None:
        one.open(f"{url}/console/clients")
        one.run("document.querySelector('input').value = 'late'")
        one.run("document.querySelector('td a').focus()")
        assert "late-comer" not in one.run("document.body.innerText")
        arrive("late-comer")
        wait_for(
            lambda: "late-comer" in one.run("document.querySelector('#live').innerText"), "it is shown", PATIENCE_S
        )
        assert one.run("document.querySelector('#live-state').innerText") == "live"
        assert one.run("document.querySelector('input').value") == "late"
        assert one.run("document.activeElement.getAttribute('href')").startswith("/console/client?client=")
        one.run("document.querySelector('form').requestSubmit()")
        wait_for(lambda: "1 of 1 sessions" in one.run(TEXT), "they are searched", PATIENCE_S)
        assert one.complaints == []

    in_browser(tmp_path, look)


@pytest.mark.timeout(180)
def test_a_table_that_is_scrolled_by_keyboard_keeps_the_focus(tmp_path: Path) -> None:
    """WCAG 2.1, 2.1.1: also after the page was updated, though the table's caption has changed."""

    def look(one: Tab, url: str, arrive: Callable[[str], None]) -> None:
        one.open(f"{url}/console/clients")
        one.run("document.querySelector('.wide').focus()")
        arrive("late-comer")
        wait_for(lambda: "late-comer" in one.run(TEXT), "it is shown", PATIENCE_S)
        assert one.run("document.activeElement.className") == "wide"
        assert one.complaints == []

    in_browser(tmp_path, look)


@pytest.mark.timeout(180)
def test_a_client_id_of_spaces_has_a_link_that_can_be_seen(tmp_path: Path) -> None:
    def look(one: Tab, url: str, arrive: Callable[[str], None]) -> None:
        for client in (" ", "a  b"):
            arrive(client)
        one.open(f"{url}/console/clients")
        link = "[...document.querySelectorAll('td a')].find((one) => one.href.endsWith('client={}'))"
        wait_for(lambda: one.run(f"{link.format('a++b')} !== undefined"), "they are shown", PATIENCE_S)
        assert one.run(f"{link.format('+')}.offsetWidth") > 0
        assert one.run(f"{link.format('a++b')}.innerText") == "a  b"

    in_browser(tmp_path, look)


@pytest.mark.timeout(180)
def test_plots_follow_what_happens_and_the_pointer_names_values(tmp_path: Path) -> None:
    """A plot that is updated stays where it is: its caption goes on to say what is under the pointer."""

    def look(one: Tab, url: str, _: Callable[[str], None]) -> None:
        one.open(f"{url}/console")
        figure = "[...document.querySelectorAll('figure')].find((one) => one.innerText.startsWith('Connections'))"
        values = f"JSON.parse({figure}.dataset.plot).times.length"
        wait_for(lambda: one.run(values) >= 2, "something is measured", PATIENCE_S)
        assert one.run("document.querySelectorAll('figure canvas').length") == len(PLOTS)
        one.run(f"window.first = {figure}.querySelector('canvas')")
        one.run(f"{figure}.scrollIntoView()")
        box = json.loads(one.run(f"JSON.stringify({figure}.querySelector('.u-over').getBoundingClientRect())"))
        one.call("Input.dispatchMouseEvent", type="mouseMoved", x=box["right"] - 2, y=box["top"] + box["height"] / 2)
        wait_for(lambda: "s ago" in one.run(f"{figure}.innerText"), "the pointer is at a value", PATIENCE_S)
        assert re.search(r"open [01] \d s ago", one.run(f"{figure}.innerText"))
        measured = one.run(values)
        wait_for(lambda: one.run(values) > measured, "the page is updated", PATIENCE_S)
        assert "s ago" in one.run(f"{figure}.innerText")
        assert one.run(f"window.first === {figure}.querySelector('canvas')")
        assert one.run("document.documentElement.scrollWidth <= innerWidth")
        assert one.complaints == []

    in_browser(tmp_path, look)


@pytest.mark.timeout(180)
def test_takeovers_appear_as_they_happen_in_light_and_dark(tmp_path: Path) -> None:
    """G4, G6: of gateways with hostile names; the page stays as wide as the window."""

    async def scenario() -> None:
        async with observed_in_cluster(tmp_path / "home") as (here, leases):
            leases.member("gateway-1")
            leases.member(HOSTILE)
            for shard in (0, 1):
                leases.claim(shard, 1, HOSTILE)
                leases.serves(shard, 1, HOSTILE, "gateway-1")
            loop = asyncio.get_running_loop()

            def take_over() -> None:
                leases.member(HOSTILE, seq=1, state="gone")
                leases.claim(0, 2, "gateway-1")
                leases.serves(0, 2, "gateway-1", HOSTILE)

            def run() -> None:
                with tab(tmp_path / "profile", ONLY_HERE) as one:
                    look(one, here.url, lambda: loop.call_soon_threadsafe(take_over))

            await asyncio.to_thread(run)

    def look(one: Tab, url: str, take_over: Callable[[], object]) -> None:
        one.open(f"{url}/console/shards")
        live = "document.querySelector('#live').innerText"
        assert "owner lost" not in one.run(live)
        take_over()
        wait_for(lambda: "owner lost" in one.run(live), "the takeover is shown", PATIENCE_S)
        assert "shards with a silent owner" in one.run("document.querySelector('.banner').innerText")
        grounds, warnings = set(), set()
        for scheme in ("light", "dark"):
            one.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
            grounds.add(one.run(GROUND))
            warnings.add(one.run("getComputedStyle(document.querySelector('.banner .bad')).color"))
        assert grounds == {"rgb(255, 255, 255)", "rgb(13, 17, 23)"}
        assert len(warnings) == 2
        assert one.run("document.documentElement.scrollWidth <= window.innerWidth")
        assert one.run("document.images.length") == 0
        assert one.run("document.title") != "owned"
        assert one.complaints == []

    run_real(scenario())


@pytest.mark.timeout(180)
def test_a_message_is_followed_from_its_topic_to_its_end(tmp_path: Path) -> None:
    """By search, then by a click; steps that the ledger writes later appear without one. Nothing hostile runs."""
    began = 1_767_323_045_678_901
    steps = [JourneyStep(at_us=began, step="accepted", who=HOSTILE, detail=f"to {HOSTILE}, QoS 1, 5 bytes")]
    one = MessageFound(id="id-1", accepted_us=began, source=HOSTILE, destination=HOSTILE, qos=1)

    async def messages(request: web.Request) -> web.Response:
        found = [one] if request.query.get("topic") == HOSTILE else []
        return web.Response(body=msgspec.json.encode(MessagesFound(messages=tuple(found))))

    async def journey(request: web.Request) -> web.Response:
        return web.Response(body=msgspec.json.encode(Journey(id=request.query["id"], steps=tuple(steps))))

    def look(one: Tab, url: str) -> None:
        one.open(f"{url}/console/messages")
        assert "the ledger has none" in one.run(TEXT)
        one.run(f"document.querySelector('input[name=topic]').value = {json.dumps(HOSTILE)}")
        one.run("document.querySelector('form').requestSubmit()")
        wait_for(lambda: "id-1" in one.run(TEXT), "it is found", PATIENCE_S)
        one.run("document.querySelector('td a').click()")
        wait_for(lambda: "waystation explain id-1" in one.run(TEXT), "its journey is shown", PATIENCE_S)
        assert "completed" not in one.run(TEXT)
        steps.append(JourneyStep(at_us=began + 2_500, step="completed", who="completion", detail="1 finished"))
        wait_for(lambda: "completed" in one.run(TEXT), "the next step is shown", PATIENCE_S)
        assert "2.5 ms" in one.run(TEXT)
        assert one.run("document.title") != "owned"
        assert one.run("document.images.length") == 0
        assert one.complaints == []

    async def scenario() -> None:
        app = web.Application()
        app.add_routes([web.get("/journeys", messages), web.get("/journey", journey)])
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        async with observed(tmp_path / "home", ledger={"metrics_port": runner.addresses[0][1]}) as here:

            def run() -> None:
                with tab(tmp_path / "profile", ONLY_HERE) as one:
                    look(one, here.url)

            await asyncio.to_thread(run)
        await runner.cleanup()

    run_real(scenario())


@pytest.mark.timeout(180)
def test_a_client_is_disconnected_by_a_click(tmp_path: Path) -> None:
    """With the token, which the browser sends as Basic credentials; without JavaScript."""

    def look(one: Tab, url: str, arrive: Callable[[str], None]) -> None:
        arrive("c")
        one.call("Emulation.setScriptExecutionDisabled", value=True)
        one.open(f"{url.replace('//', f'//operator:{TOKEN}@')}/console/client?client=c")
        assert "connected" in one.run("document.querySelector('table').innerText")
        one.run("document.querySelector('form.action button').click()")
        wait_for(lambda: "The client was disconnected" in one.run(TEXT), "it is", PATIENCE_S)
        assert "offline" in one.run("document.querySelector('table').innerText")

    token = tmp_path / "token"
    token.write_text(TOKEN)
    in_browser(tmp_path, look, admin_token_file=str(token))
