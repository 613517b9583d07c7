"""Message presence over HTTP: agents tell what they do, ask what is known, and claim a message (M9, M11, M13)."""

import asyncio
import json
from pathlib import Path
from typing import Any

from schemas.events import CLOCKS_APART_S, MessagePresenceEvent, decode, encode
from schemas.identity import partition_of
from schemas.states import Claim, MessagePresenceState
from tests.unit.gateway.http.http_world import Answer, HttpWorld, run, until

ID = "0198c0de-0000-7000-8000-000000000000"
HERE = partition_of(ID, 2)
AGENT = {"X-Client-Id": "agent-1"}


def state(
    judged: int = -1, claim: Claim | None = None, kept_until_ms: int = 2**50, **more: Any
) -> MessagePresenceState:
    fields = {"id": ID, "state": "pending", "origin": "a", "delivered_by": "", "delivered_to": "", "delivered_us": 0}
    lists: dict[str, Any] = {"holders": ["a"], "attempting": [], "refused": [], "retired": False}
    return MessagePresenceState(
        **{**fields, **lists, "claim": claim, "judged_ms": 2**50, **more}, judged=judged, kept_until_ms=kept_until_ms
    )


def merged(world: HttpWorld, told: MessagePresenceState | None, message_id: str = ID) -> None:
    """As the ledger writes it."""
    topic, value = world.topics.message_presence_state, None if told is None else encode(told)
    world.bus.produce(topic, partition_of(message_id, 2), message_id.encode(), value, None, lambda *_: None)


def said(world: HttpWorld) -> list[MessagePresenceEvent]:
    records = world.broker.partitions[world.topics.message_presence, HERE]
    return [decode(MessagePresenceEvent, record.value() or b"") for record in records]


async def ask(world: HttpWorld, message_id: str = ID) -> Answer:
    return await world.request("GET", f"/v1/message-presence/{message_id}", headers=AGENT)


async def say(world: HttpWorld, event: str, message_id: str = ID, **more: Any) -> Answer:
    body = json.dumps({"event": event, "at_us": 7, **more})
    headers = {**AGENT, "Content-Type": "application/json"}
    return await world.request("POST", f"/v1/message-presence/{message_id}", data=body, headers=headers)


def test_what_is_known_is_answered_from_memory_also_after_a_restart(tmp_path: Path) -> None:
    """M9, M13: as soon as it is merged; an end of the record ends it."""

    async def scenario() -> None:
        world = await HttpWorld(tmp_path).start()
        assert (await ask(world)).reason == "unknown_message"
        merged(world, state(state="delivered", delivered_by="b", delivered_to="z", delivered_us=5))
        await until(lambda: len(world.context.message_presence) == 1)
        for _ in range(2):
            answer = await ask(world)
            assert (answer.status, answer.json["state"], answer.json["delivered_by"]) == (200, "delivered", "b")
            await world.restart()
        merged(world, None)
        await until(lambda: len(world.context.message_presence) == 0)
        assert (await ask(world)).status == 404

    run(scenario())


def test_an_agent_speaks_for_itself(tmp_path: Path) -> None:
    """M9: stored before it is answered, under the name that the gateway knows."""

    async def scenario() -> None:
        world = await HttpWorld(tmp_path).start()
        assert (await say(world, "propagated", peer="agent-2", until_us=9)).status == 204
        (event,) = said(world)
        assert (event.agent, event.event, event.peer, event.at_us, event.until_us) == (
            "http:agent-1",
            "propagated",
            "agent-2",
            7,
            9,
        )

    run(scenario())


def test_a_claim_is_answered_once_it_is_judged(tmp_path: Path) -> None:
    """M11: granted, or told who has it; a state that does not know of the claim yet is no answer."""

    async def scenario() -> None:
        world = await HttpWorld(tmp_path).start()
        granted = asyncio.create_task(say(world, "claimed"))
        await until(lambda: len(said(world)) == 1)
        merged(world, state(judged=-1))
        await until(lambda: len(world.context.message_presence) == 1)
        assert not granted.done()
        merged(world, state(judged=0, claim=Claim(agent="http:agent-1", at_us=7, until_ms=2**50)))
        answer = await granted
        assert (answer.status, answer.json["granted"]) == (200, True)
        refused = asyncio.create_task(say(world, "claimed", until_us=5))
        await until(lambda: len(said(world)) == 2)
        merged(world, state(judged=1, claim=Claim(agent="b", at_us=1, until_ms=2**50)))
        assert ((await refused).json["granted"], (await refused).json["state"]["claim"]["agent"]) == (False, "b")

    run(scenario())


def test_a_claim_is_not_granted_that_is_over(tmp_path: Path) -> None:
    """M11: said again after its time, or when there is nothing left to deliver; else two agents might."""
    mine = {"agent": "http:agent-1", "at_us": 7}

    async def scenario() -> None:
        world = await HttpWorld(tmp_path).start()
        over = Claim(**mine, until_ms=int(world.clock() * 1000))
        lasting = Claim(**mine, until_ms=2**50)
        told: list[dict[str, Any]] = [
            {"claim": over},
            {"claim": lasting, "state": "delivered"},
            {"claim": lasting, "state": "expired"},
            {"claim": lasting, "retired": True},
            {"claim": Claim(agent="http:agent-1", at_us=6, until_ms=2**50)},
            {"claim": lasting},
        ]
        granted = []
        for number, known in enumerate(told):
            asked = asyncio.create_task(say(world, "claimed"))
            await until(lambda number=number: len(said(world)) == number + 1)  # type: ignore[misc]
            merged(world, state(judged=number, **known))
            granted.append((await asked).json["granted"])
        assert granted == [False] * 5 + [True]

    run(scenario())


def test_the_clock_of_the_gateway_does_not_decide_how_long_a_claim_lasts(tmp_path: Path) -> None:
    """M11: the broker's does: a gateway that is an hour ahead would grant nothing, one behind what is over."""

    async def scenario() -> None:
        world = HttpWorld(tmp_path)
        brokers_clock = world.clock
        world.clock = lambda: brokers_clock() + 3600  # type: ignore[method-assign]
        await world.start()
        for number, (left_s, is_granted) in enumerate([(60, True), (-1, False)]):
            asked = asyncio.create_task(say(world, "claimed"))
            await until(lambda number=number: len(said(world)) == number + 1)  # type: ignore[misc]
            until_ms = int((brokers_clock() + left_s) * 1000)
            merged(world, state(judged=number, claim=Claim(agent="http:agent-1", at_us=7, until_ms=until_ms)))
            assert (await asked).json["granted"] is is_granted

    run(scenario())


def test_a_claim_on_a_topic_that_was_made_anew_waits_for_its_own_verdict(tmp_path: Path) -> None:
    """M11: the state knows of a later offset, on the topic of that name before."""

    async def scenario() -> None:
        world = await HttpWorld(tmp_path).start()
        merged(world, state(judged=500, judged_ms=1, claim=Claim(agent="http:agent-1", at_us=7, until_ms=2**50)))
        await until(lambda: len(world.context.message_presence) == 1)
        asked = asyncio.create_task(say(world, "claimed"))
        await until(lambda: len(said(world)) == 1)
        merged(world, state(judged=500, judged_ms=2, claim=Claim(agent="b", at_us=1, until_ms=2**50)))
        await until(lambda: world.context.message_presence.get(ID, 0).judged_ms == 2)  # type: ignore[union-attr]
        assert not asked.done()
        merged(world, state(judged=0, claim=Claim(agent="b", at_us=1, until_ms=2**50)))
        assert (await asked).json["granted"] is False

    run(scenario())


def test_an_agent_whose_clock_is_ahead_is_told_so(tmp_path: Path) -> None:
    """M9: the ledger does not believe it; 204 would have promised that its word counts."""

    async def scenario() -> None:
        world = await HttpWorld(tmp_path).start()
        now_us = int(world.clock() * 1e6)
        answer = await say(world, "attempting", at_us=now_us + (CLOCKS_APART_S + 60) * 1_000_000)
        assert (answer.status, answer.reason) == (400, "clock_ahead")
        assert said(world) == []
        assert (await say(world, "attempting", at_us=now_us + (CLOCKS_APART_S - 60) * 1_000_000)).status == 204
        assert len(said(world)) == 1

    run(scenario())


def test_a_claim_that_nobody_judges_is_answered_in_time(tmp_path: Path) -> None:
    """M11: the ledger is away; saying it again is safe."""

    async def scenario() -> None:
        world = await HttpWorld(tmp_path, http={"kafka_timeout_s": 0.05}).start()
        assert (await say(world, "claimed")).reason == "not_in_time"

    run(scenario())


def test_what_is_malformed_is_refused_with_the_reason(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = await HttpWorld(tmp_path).start()
        assert (await say(world, "sold")).reason == "malformed_body"
        assert (await say(world, "delivered")).reason == "malformed_body"
        assert (await say(world, "expired", at_us=-1)).reason == "malformed_body"
        assert (await say(world, "expired", agent="somebody")).reason == "malformed_body"
        assert (await say(world, "expired", message_id="a%20b")).reason == "malformed_message_id"
        assert (await ask(world, "x" * 129)).reason == "malformed_message_id"
        nameless = await world.request(
            "POST", f"/v1/message-presence/{ID}", data=b"{}", headers={"Content-Type": "application/json"}
        )
        assert nameless.reason == "nameless_client"
        assert (await world.request("DELETE", f"/v1/message-presence/{ID}")).headers["Allow"] == "GET, POST"
        assert said(world) == []

    run(scenario())


def test_the_view_is_bounded_and_forgets_what_is_kept_no_more(tmp_path: Path) -> None:
    """M9: "how long that record is kept"."""

    async def scenario() -> None:
        world = await HttpWorld(tmp_path, message_presences=2).start()
        for number in range(3):
            merged(world, state(id=f"m{number}"), f"m{number}")
        await until(lambda: world.context.counts["message_presence_forgotten"] == 1)
        assert len(world.context.message_presence) == 2
        merged(world, state(kept_until_ms=1))
        await until(lambda: world.context.counts["message_presence_forgotten"] == 2)
        assert (await ask(world)).status == 404
        world.context.message_presence.forget(world.clock() + 3600)
        assert len(world.context.message_presence) == 1
        await world.restart()
        assert len(world.context.message_presence) == 2
        forgotten = world.context.counts["message_presence_forgotten"]
        assert forgotten == 1, "what is over takes no place of others at a start"

    run(scenario())
