"""Whichever gateway an operator asks, the client's home answers, or the operator learns soon that it does not (G14)."""

import asyncio
from pathlib import Path

import pytest

from gateway.errors import HomeUnreachable, NotAdmitted
from gateway.observe import site_sessions
from gateway.observe.site_sessions import SiteSessions
from tests.unit.gateway.http.http_harness import until
from tests.unit.gateway.http.http_site import HOST, HttpSite, client_of, run

NAME = client_of(1)
CLIENT = f"http:{NAME}"
"""Its home is gateway 1."""


def at(site: HttpSite, gateway: int) -> SiteSessions:
    return site.admin[gateway]._site


def test_a_session_is_shown_wherever_it_is(tmp_path: Path) -> None:
    async def scenario() -> None:
        site = await HttpSite(tmp_path).start()
        assert await at(site, 0).session(CLIENT) is None
        async with site.stream(1, "?filter=a", X_Client_Id=NAME):
            here, there = await at(site, 1).session(CLIENT), await at(site, 0).session(CLIENT)
            assert here is not None
            assert here["state"] == "connected"
            assert there == here | {"home": "1"}

    run(scenario())


def test_a_client_is_disconnected_wherever_it_is(tmp_path: Path) -> None:
    """The connection alone, or the session too; once it has ended there is none."""

    async def scenario() -> None:
        site = await HttpSite(tmp_path).start()
        assert await at(site, 0).kick(CLIENT, end_session=False) is None
        async with site.stream(0, "?filter=a", X_Client_Id=NAME) as stream:
            kicked = await at(site, 0).kick(CLIENT, end_session=False)
            assert kicked == {"client": CLIENT, "connection_ended": True, "session_ended": False, "home": "1"}
            assert [event.data for event in await stream.rest()] == [{"reason": "administrative_action"}]
        kicked = await at(site, 0).kick(CLIENT, end_session=True)
        assert kicked is not None
        assert (kicked["connection_ended"], kicked["session_ended"]) == (False, True)
        assert await at(site, 0).session(CLIENT) is None
        assert await at(site, 1).kick(CLIENT, end_session=True) is None

    run(scenario())


def test_a_client_id_of_any_kind_is_asked_for_as_it_is(tmp_path: Path) -> None:
    async def scenario() -> None:
        site = await HttpSite(tmp_path).start()
        for name in ("a/b", "é &?#=%2F+", "../../admin", "\x1b[0m"):
            client = next(f"{name}{n}" for n in range(99) if not site.gateways[0].home.has_shard_of(f"{name}{n}"))
            await site.client(client)
            found = await at(site, 0).session(client)
            assert found is not None
            assert found["client"] == client

    run(scenario())


def test_a_home_that_has_just_changed_is_found(tmp_path: Path) -> None:
    async def scenario() -> None:
        site = await HttpSite(tmp_path).start()
        async with site.stream(1, "?filter=a", X_Client_Id=NAME):
            pass
        former = site.member(1, 1)
        await site.move_to_new(1)
        site.homes[0].believed = {1: former}
        found = await at(site, 0).session(CLIENT)
        assert found is not None
        assert found["home"] == "2"
        assert site.count(1, "home_calls") == 0, "what another gateway asks is not passed on"

    run(scenario())


def test_a_home_that_is_stopped_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site_sessions, "SITE_S", 0.1)

    async def scenario() -> None:
        site = await HttpSite(tmp_path).start()
        silent = await asyncio.get_running_loop().create_server(asyncio.Protocol, HOST, 0)
        stopped = site.member(1, 1)._replace(gateway="stopped", port=silent.sockets[0].getsockname()[1])
        site.homes[0].believed = {1: stopped}
        with pytest.raises(HomeUnreachable):
            await at(site, 0).kick(CLIENT, end_session=False)
        site.homes[0].believed, site.homes[0].wait_s = {1: None}, 0
        with pytest.raises(NotAdmitted):
            await at(site, 0).kick(CLIENT, end_session=False)
        silent.close()

    run(scenario())


@pytest.mark.parametrize("gateway", [0, 1])
def test_an_end_that_is_not_stored_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gateway: int
) -> None:
    """It goes on, and comes to its end once Kafka has it."""
    monkeypatch.setattr(site_sessions, "HOME_S", 0.1)

    async def scenario() -> None:
        site = await HttpSite(tmp_path).start()
        async with site.stream(1, "?filter=a", X_Client_Id=NAME):
            pass
        bus = site.gateways[1].bus
        bus.held_acks = {site.topics.sessions}
        with pytest.raises(HomeUnreachable, match="not stored yet"):
            await at(site, gateway).kick(CLIENT, end_session=True)
        bus.held_acks = set()
        bus.release()
        await until(lambda: not at(site, 1)._kicks)
        assert await at(site, gateway).session(CLIENT) is None

    run(scenario())


def test_without_tls_the_home_asks_for_the_token_too(tmp_path: Path) -> None:
    """R11: whoever reaches the listener for members is no operator by that."""
    token = tmp_path / "token"
    token.write_text("0123456789abcdef-not-a-real-one")

    async def scenario() -> None:
        site = await HttpSite(tmp_path, gateway={"admin_token_file": str(token)}).start()
        async with site.stream(1, "?filter=a", X_Client_Id=NAME):
            with pytest.raises(HomeUnreachable, match="requires the token"):
                await at(site, 0).kick(CLIENT, end_session=False)
            found = await at(site, 0).session(CLIENT, f"Bearer {token.read_text()}")
            assert found is not None
            assert found["state"] == "connected"

    run(scenario())


def test_clients_cannot_ask_what_gateways_may(tmp_path: Path) -> None:
    """R11: the paths of operators are not there on the port for clients."""

    async def scenario() -> None:
        site = await HttpSite(tmp_path).start()
        for method, path in site.hosts[1].member_requests:
            answer = await site.ask(1, method, f"{path}?client={NAME}")
            assert (answer.status, answer.reason) == (404, "not_found")

    run(scenario())
