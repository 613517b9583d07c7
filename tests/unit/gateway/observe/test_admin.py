"""The admin API: who may use it, what it lists, what it ends."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from mqtt.codes import ReasonCode
from mqtt.packets import Disconnect, Publish, Subscribe, Subscription, Will
from schemas.operator_access import TokenError
from tests.unit.gateway.host.test_host_connection import Wire, connect
from tests.unit.gateway.observe.observed import Observed, observed, run_real
from tests.unit.gateway.shard.home_harness import turn

TOKEN = "0123456789abcdef-not-a-real-one"


def test_the_token_is_asked_for_also_on_this_machine_and_may_be_changed(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN + "\n")

    async def scenario() -> None:
        async with observed(tmp_path, admin_token_file=str(file)) as here:
            status, answer = await here.get("/admin/sessions")
            assert status == 401
            assert "gateway.admin_token_file" in answer["error"]
            assert (await here.get("/admin/sessions", headers=_bearer(TOKEN)))[0] == 200
            file.write_text("another-token-of-the-operator")
            assert (await here.get("/admin/sessions", headers=_bearer(TOKEN)))[0] == 401
            assert (await here.get("/admin/sessions", headers=_bearer("another-token-of-the-operator")))[0] == 200
            file.unlink()
            assert (await here.get("/admin/sessions", headers=_bearer(TOKEN)))[0] == 503
            assert (await here.samples())["waystation_admin_requests_refused_total", ()] == 2
            assert (await here.get("/readyz"))[0] == 200, "health and metrics need none"

    run_real(scenario())


@pytest.mark.parametrize("content", [None, b"", b"  too-short \n"])
def test_a_token_that_is_none_ends_the_start_with_a_sentence(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_bytes(content)

    async def scenario() -> None:
        async with observed(tmp_path, admin_token_file=str(file)):
            raise AssertionError("it started")

    with pytest.raises(TokenError, match=r"gateway\.admin_token_file"):
        run_real(scenario())


def test_nobody_is_answered_while_sessions_are_being_recovered(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with observed(tmp_path) as here:
            here.readiness.phase = "starting"
            assert (await here.get("/admin/sessions"))[0] == 503
            assert (await here.request("DELETE", "/admin/session", params={"client": "c"}))[0] == 503

    run_real(scenario())


def test_sessions_are_listed_in_pages(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with observed(tmp_path) as here:
            wires = {name: Wire(here.hosts).send(connect(name)) for name in ("b/1", "a", "b/3", "b/2", "é&?#")}
            await turn()
            wires["b/3"].lose()
            await turn()
            names, answer = await _page(here, prefix="b/", limit="2")
            assert (names, answer["total"], answer["next"]) == (["b/1", "b/2"], 3, "b/2")
            names, answer = await _page(here, prefix="b/", limit="2", after="b/2")
            assert (names, answer["total"], answer["next"]) == (["b/3"], 3, None)
            assert (await _page(here, state="offline"))[0] == ["b/3"]
            assert (await _page(here, state="connected"))[0] == ["a", "b/1", "b/2", "é&?#"]
            status, session = await here.get("/admin/session", params={"client": "é&?#"})
            assert (status, session["client"], session["peer"]) == (200, "é&?#", "memory")

    run_real(scenario())


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("/admin/sessions?state=asleep", "state='asleep' is not allowed: connected or offline"),
        ("/admin/sessions?limit=0", "limit='0' is not allowed: 1 to 1000"),
        ("/admin/sessions?limit=1001", "1 to 1000"),
        ("/admin/sessions?limit=%C2%B2", "1 to 1000"),
        ("/admin/sessions?limit=" + "9" * 5000, "1 to 1000"),
        ("/admin/sessions?client=x", "unknown parameter 'client'; allowed: prefix, after, state, limit"),
        ("/admin/session", "the parameter `client` is missing"),
    ],
)
def test_a_wrong_question_is_answered_with_what_is_wrong(tmp_path: Path, path: str, sentence: str) -> None:
    async def scenario() -> None:
        async with observed(tmp_path) as here:
            status, answer = await here.get(path)
            assert status == 400
            assert sentence in answer["error"]

    run_real(scenario())


def test_unknown_paths_methods_and_clients(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with observed(tmp_path) as here:
            assert (await here.get("/admin/nothing"))[0] == 404
            assert (await here.request("POST", "/admin/session"))[0] == 405
            status, answer = await here.request("DELETE", "/admin/connection", params={"client": "nobody"})
            assert (status, answer["error"]) == (404, "this gateway has no session of 'nobody'")

    run_real(scenario())


def test_one_session_in_detail_without_any_payload(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with observed(tmp_path) as here:
            wire = Wire(here.hosts).send(
                connect("c", will=Will("w", b"secret-payload")), Subscribe(1, [Subscription("a/#", 1, no_local=True)])
            )
            await turn()
            sender = Wire(here.hosts).send(connect("sender"))
            await turn()
            sender.send(Publish("a/b", b"secret-payload", 1, packet_id=1))
            await turn()
            assert (await here.get("/admin/session", params={"client": "c"}))[1]["has_will"] is True
            wire.lose()
            await turn()
            sender.send(Publish("a/b", b"secret-payload", 1, packet_id=2))
            await turn()
            async with here.http.get(here.url + "/admin/session", params={"client": "c"}) as answer:
                text = await answer.text()
                session: dict[str, Any] = await answer.json()
            assert "secret" not in text
            assert (session["state"], session["protocol"], session["expiry_s"]) == ("offline", "mqtt5", 100)
            assert session["has_will"] is False, "it has been published"
            assert session["queue"]["in_memory"] + session["queue"]["in_spool"] == 1
            assert session["queue"]["bytes"] == len(b"a/bsecret-payload\0")
            assert session["windows"]["to_client"] == 1
            (subscription,) = session["subscription_list"]
            assert (subscription["filter"], subscription["qos"], subscription["no_local"]) == ("a/#", 1, True)

    run_real(scenario())


def test_kick_ends_the_connection_and_leaves_the_session(tmp_path: Path) -> None:
    """R12, MQTT 5.0, 3.14.2.1: 0x98, the will is due, and the client may come back."""

    async def scenario() -> None:
        async with observed(tmp_path) as here:
            wire = Wire(here.hosts).send(connect("c", will=Will("w", b"gone")))
            await turn()
            status, answer = await _delete(here, "/admin/connection", "c")
            assert (status, answer) == (200, {"client": "c", "connection_ended": True, "session_ended": False})
            assert wire.is_closed
            assert wire.received[-1] == Disconnect(ReasonCode.ADMINISTRATIVE_ACTION)
            await turn()
            assert here.harness.ids_of(b"gone")
            assert here.hosts.counts["closed_administrative_action"] == 1
            last = here.harness.presence("c")[-1]
            assert (last.event, last.reason) == ("lost", "administrative_action")
            assert here.harness.home.session("c") is not None
            assert (await _delete(here, "/admin/connection", "c"))[1]["connection_ended"] is False
            again = Wire(here.hosts).send(connect("c"))
            await turn()
            assert again.received[0].session_present  # type: ignore[union-attr]

    run_real(scenario())


@pytest.mark.parametrize("is_connected", [True, False])
@pytest.mark.parametrize("expiry_s", [0, 100])
def test_the_session_may_be_ended_too_connected_or_not(tmp_path: Path, is_connected: bool, expiry_s: int) -> None:
    async def scenario() -> None:
        async with observed(tmp_path) as here:
            wire = Wire(here.hosts).send(connect("c", expiry_s))
            await turn()
            if not is_connected:
                wire.lose()
                await turn()
            status, answer = await _delete(here, "/admin/session", "c")
            if not is_connected and not expiry_s:
                assert status == 404
            else:
                assert answer == {"client": "c", "connection_ended": is_connected, "session_ended": True}
            assert here.harness.home.session("c") is None
            again = Wire(here.hosts).send(connect("c"))
            await turn()
            assert not again.received[0].session_present  # type: ignore[union-attr]

    run_real(scenario())


def test_a_client_that_is_just_connecting_is_kicked_when_it_has_connected(tmp_path: Path) -> None:
    """Its session must not end under its hands while it is still being made durable."""

    async def scenario() -> None:
        async with observed(tmp_path) as here:
            harness = here.harness
            harness.bus.held_acks = {harness.topics.sessions}
            wire = Wire(here.hosts).send(connect("c"))
            await turn()
            kicked = asyncio.create_task(_delete(here, "/admin/session", "c"))
            await turn()
            assert not kicked.done()
            harness.bus.held_acks = set()
            harness.bus.release()
            assert (await kicked)[1] == {"client": "c", "connection_ended": True, "session_ended": True}
            assert wire.is_closed
            assert harness.home.session("c") is None

    run_real(scenario())


def test_what_is_ended_stays_so_when_the_gateway_dies_with_the_answer(tmp_path: Path) -> None:
    """The answer comes when Kafka has the end, of an offline session and of its will too."""

    async def scenario() -> None:
        async with observed(tmp_path) as here:
            harness = here.harness
            wire = Wire(here.hosts).send(connect("c", will=Will("w", b"gone")))
            await turn()
            harness.bus.held_acks = {harness.topics.sessions, harness.topics.ingress}
            kicked = asyncio.create_task(_delete(here, "/admin/session", "c"))
            await turn()
            assert wire.is_closed
            assert not kicked.done()
            harness.bus.held_acks = {harness.topics.sessions}
            harness.bus.release()
            await turn()
            assert not kicked.done()
            harness.bus.held_acks = set()
            harness.bus.release()
            assert (await kicked)[1]["session_ended"]
            await harness.restart()
            assert harness.home.session("c") is None

    run_real(scenario())


async def _page(here: Observed, **query: str) -> tuple[list[str], Any]:
    status, answer = await here.get("/admin/sessions", params=query)
    assert status == 200
    return [session["client"] for session in answer["sessions"]], answer


async def _delete(here: Observed, path: str, client: str) -> tuple[int, Any]:
    return await here.request("DELETE", path, params={"client": client})


def _bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}
