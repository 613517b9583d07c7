"""The console of a cluster's gateway over HTTP: shards that are elsewhere, takeovers, clients of other gateways."""

import re
from pathlib import Path

import msgspec

from gateway.console.render import PAGES
from gateway.errors import HomeUnreachable
from gateway.host.home_calls import HomeRequest
from gateway.host.homes import HomeElsewhere
from schemas.identity import shard_of
from schemas.members import GatewayAddress
from tests.unit.gateway.console.test_console_http import ask, shown_token, token_file
from tests.unit.gateway.host.test_host_connection import Wire, connect
from tests.unit.gateway.observe.leases_seen import LeasesSeen
from tests.unit.gateway.observe.observed import observed, observed_in_cluster, run_real
from tests.unit.gateway.shard.home_harness import turn

ME, OTHER = "gateway-1", "gateway-2"
LINK = "http://other.test:9464/console"
CLIENT = next(name for name in map(str, range(99)) if shard_of(name, 2) == 1)


def two_gateways(leases: LeasesSeen) -> None:
    """Shard 0 is here, shard 1 at the other one."""
    leases.member(ME)
    leases.member(OTHER, addresses={"console": GatewayAddress("other.test", 9464)})
    leases.claim(0, 1, ME)
    leases.serves(0, 1, ME, OTHER)
    leases.claim(1, 1, OTHER)
    leases.serves(1, 1, OTHER, ME)
    leases.phases[0] = "serving"


def test_all_shards_and_takeovers_are_shown_as_they_happen(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with observed_in_cluster(tmp_path) as (here, leases):
            two_gateways(leases)
            await here.harness.home.hand_over(1)
            page = (await ask(here, "/console/shards")).text
            assert f'<a href="{LINK}/shards"><bdi>{OTHER}</bdi></a>' in page
            assert '<td class="text">standby</td>' in page
            assert "Cluster</b>" not in page
            leases.claim(1, 2, ME, boot=5)
            part = (await ask(here, "/console/shards", headers={"X-Console-Part": "live"})).text
            assert "owner lost" in part
            leases.release(0, 2, ME)
            for path, _ in PAGES:
                assert "Cluster</b> shards without an owner: 0" in (await ask(here, path)).text, path

    run_real(scenario())


def test_gateways_are_shown_with_their_shards_and_consoles(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with observed_in_cluster(tmp_path) as (here, leases):
            two_gateways(leases)
            page = (await ask(here, "/console")).text
            assert f'<a href="{LINK}"><bdi>{OTHER}</bdi></a>' in page
            assert "standby of" in page
            assert "console other.test" not in page, "it is no bearer"

    run_real(scenario())


class OtherHome:
    """Gateway 2, as this one asks it about clients; `status` and `body` are what it answers."""

    status = 200
    body = b""
    where = HomeElsewhere(OTHER, "127.0.0.1", 1, 1, 1)

    def __init__(self) -> None:
        self.asked: list[HomeRequest] = []

    @property
    def calls(self) -> "OtherHome":
        return self

    def is_here(self, client: str) -> bool:
        return False

    async def call(self, client: str, request: HomeRequest) -> "OtherHome":
        self.asked.append(request)
        if not self.status:
            raise HomeUnreachable(f"{OTHER} does not answer")
        return self

    async def read(self, most: int, within_s: float) -> bytes:
        return self.body

    def close(self) -> None: ...


def test_a_client_whose_home_is_elsewhere_is_linked_and_ended_there(tmp_path: Path) -> None:
    """G14: its home ends the connection; one that does not answer is reported (emqx#13124)."""

    async def scenario() -> None:
        async with observed_in_cluster(tmp_path, admin_token_file=token_file(tmp_path)) as (here, leases):
            two_gateways(leases)
            Wire(here.hosts).send(connect(CLIENT))
            await turn()
            own = shown_token() | {"Origin": here.url}
            page = await ask(here, f"/console/client?client={CLIENT}", headers=own)
            (token, *_) = re.findall(r'action="/console/kick[^>]*>\s*<input[^>]*value="(\w+)"', page.text)
            await here.harness.home.hand_over(1)
            page = await ask(here, f"/console/client?client={CLIENT}", headers=own)
            assert page.status == 404
            assert f'<a href="{LINK}/client?client={CLIENT}"><bdi>{OTHER}</bdi></a>' in page.text
            kicked = await ask(here, f"/console/kick?client={CLIENT}", "POST", headers=own, data={"token": token})
            assert kicked.status == 503
            assert "another gateway has the client's shard" in kicked.text
            other = OtherHome()
            here.hosts.relays = other  # type: ignore[assignment]
            for status, body, answer, sentence in (
                (200, {"connection_ended": True, "session_ended": False}, 200, f"{OTHER}, has ended its connection"),
                (404, {"error": "no session"}, 404, "has a session of that client"),
                (500, {"error": "broken"}, 503, "broken"),
                (0, {}, 503, "does not answer"),
            ):
                other.status, other.body = status, msgspec.json.encode(body)
                kicked = await ask(here, f"/console/kick?client={CLIENT}", "POST", headers=own, data={"token": token})
                assert kicked.status == answer
                assert sentence in kicked.text
                request = other.asked.pop()
                assert (request.method, request.target) == ("DELETE", f"/admin/connection?client={CLIENT}")
                assert request.headers == shown_token("Bearer"), "as other gateways take it"
            here.hosts.relays = None
            listed = (await ask(here, f"/console/clients?prefix={CLIENT}&state=offline", headers=own)).text
            assert "This gateway has 1 of 2 shards, and knows only their sessions." in listed
            assert f"{LINK}/clients?prefix={CLIENT}&amp;state=offline" in listed

    run_real(scenario())


def test_the_pages_of_a_gateway_that_is_alone_say_nothing_of_a_cluster(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with observed(tmp_path) as here:
            for path, _ in PAGES:
                text = (await ask(here, path)).text
                assert not re.search("standby|epoch|Elsewhere|Takeovers", text), path

    run_real(scenario())
