"""Message presence over HTTP: agents tell what they do, ask what is known, and claim a message (M9, M11, M13)."""

import asyncio
import json
from pathlib import Path
from typing import Any

from schemas.events import CLOCKS_APART_S, MessagePresenceEvent, decode, encode
from schemas.identity import partition_of
from schemas.mesh_api import STATES_BYTES
from schemas.states import Claim, MessagePresenceState
from tests.unit.gateway.http.http_harness import Answer, HttpHarness, run, until

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


def merged(harness: HttpHarness, told: MessagePresenceState | None, message_id: str = ID) -> None:
    """As the ledger writes it."""
    topic, value = harness.topics.message_presence_state, None if told is None else encode(told)
    harness.bus.produce(topic, partition_of(message_id, 2), message_id.encode(), value, None, lambda *_: None)


def said(harness: HttpHarness) -> list[MessagePresenceEvent]:
    records = harness.broker.partitions[harness.topics.message_presence, HERE]
    return [decode(MessagePresenceEvent, record.value() or b"") for record in records]


async def ask(harness: HttpHarness, message_id: str = ID) -> Answer:
    return await harness.request("GET", f"/v1/message-presence/{message_id}", headers=AGENT)


async def say(harness: HttpHarness, event: str, message_id: str = ID, **more: Any) -> Answer:
    body = json.dumps({"event": event, "at_us": 7, **more})
    headers = {**AGENT, "Content-Type": "application/json"}
    return await harness.request("POST", f"/v1/message-presence/{message_id}", data=body, headers=headers)


def test_what_is_known_is_answered_from_memory_also_after_a_restart(tmp_path: Path) -> None:
    """M9, M13: as soon as it is merged; an end of the record ends it."""

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path).start()
        assert (await ask(harness)).reason == "unknown_message"
        merged(harness, state(state="delivered", delivered_by="b", delivered_to="z", delivered_us=5))
        await until(lambda: len(harness.node.message_presence) == 1)
        for _ in range(2):
            answer = await ask(harness)
            assert (answer.status, answer.json["state"], answer.json["delivered_by"]) == (200, "delivered", "b")
            await harness.restart()
        merged(harness, None)
        await until(lambda: len(harness.node.message_presence) == 0)
        assert (await ask(harness)).status == 404

    run(scenario())


def test_an_agent_speaks_for_itself(tmp_path: Path) -> None:
    """M9: stored before it is answered, under the name that the gateway knows."""

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path).start()
        assert (await say(harness, "propagated", peer="agent-2", until_us=9)).status == 204
        (event,) = said(harness)
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
        harness = await HttpHarness(tmp_path).start()
        granted = asyncio.create_task(say(harness, "claimed"))
        await until(lambda: len(said(harness)) == 1)
        merged(harness, state(judged=-1))
        await until(lambda: len(harness.node.message_presence) == 1)
        assert not granted.done()
        merged(harness, state(judged=0, claim=Claim(agent="http:agent-1", at_us=7, until_ms=2**50)))
        answer = await granted
        assert (answer.status, answer.json["granted"]) == (200, True)
        refused = asyncio.create_task(say(harness, "claimed", until_us=5))
        await until(lambda: len(said(harness)) == 2)
        merged(harness, state(judged=1, claim=Claim(agent="b", at_us=1, until_ms=2**50)))
        assert ((await refused).json["granted"], (await refused).json["state"]["claim"]["agent"]) == (False, "b")

    run(scenario())


def test_a_claim_is_not_granted_that_is_over(tmp_path: Path) -> None:
    """M11: said again after its time, or when there is nothing left to deliver; else two agents might."""
    mine = {"agent": "http:agent-1", "at_us": 7}

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path).start()
        over = Claim(**mine, until_ms=int(harness.clock() * 1000))
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
            asked = asyncio.create_task(say(harness, "claimed"))
            await until(lambda number=number: len(said(harness)) == number + 1)  # type: ignore[misc]
            merged(harness, state(judged=number, **known))
            granted.append((await asked).json["granted"])
        assert granted == [False] * 5 + [True]

    run(scenario())


def test_the_clock_of_the_gateway_does_not_decide_how_long_a_claim_lasts(tmp_path: Path) -> None:
    """M11: the broker's does: a gateway that is an hour ahead would grant nothing, one behind what is over."""

    async def scenario() -> None:
        harness = HttpHarness(tmp_path)
        brokers_clock = harness.clock
        harness.clock = lambda: brokers_clock() + 3600  # type: ignore[method-assign]
        await harness.start()
        for number, (left_s, is_granted) in enumerate([(60, True), (-1, False)]):
            asked = asyncio.create_task(say(harness, "claimed"))
            await until(lambda number=number: len(said(harness)) == number + 1)  # type: ignore[misc]
            until_ms = int((brokers_clock() + left_s) * 1000)
            merged(harness, state(judged=number, claim=Claim(agent="http:agent-1", at_us=7, until_ms=until_ms)))
            assert (await asked).json["granted"] is is_granted

    run(scenario())


def test_a_claim_on_a_topic_that_was_made_anew_waits_for_its_own_verdict(tmp_path: Path) -> None:
    """M11: the state knows of a later offset, on the topic of that name before."""

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path).start()
        merged(harness, state(judged=500, judged_ms=1, claim=Claim(agent="http:agent-1", at_us=7, until_ms=2**50)))
        await until(lambda: len(harness.node.message_presence) == 1)
        asked = asyncio.create_task(say(harness, "claimed"))
        await until(lambda: len(said(harness)) == 1)
        merged(harness, state(judged=500, judged_ms=2, claim=Claim(agent="b", at_us=1, until_ms=2**50)))
        await until(lambda: harness.node.message_presence.get(ID, 0).judged_ms == 2)  # type: ignore[union-attr]
        assert not asked.done()
        merged(harness, state(judged=0, claim=Claim(agent="b", at_us=1, until_ms=2**50)))
        assert (await asked).json["granted"] is False

    run(scenario())


def test_an_agent_whose_clock_is_ahead_is_told_so(tmp_path: Path) -> None:
    """M9: the ledger does not believe it; 204 would have promised that its word counts."""

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path).start()
        now_us = int(harness.clock() * 1e6)
        answer = await say(harness, "attempting", at_us=now_us + (CLOCKS_APART_S + 60) * 1_000_000)
        assert (answer.status, answer.reason) == (400, "clock_ahead")
        assert said(harness) == []
        assert (await say(harness, "attempting", at_us=now_us + (CLOCKS_APART_S - 60) * 1_000_000)).status == 204
        assert len(said(harness)) == 1

    run(scenario())


def test_a_claim_that_nobody_judges_is_answered_in_time(tmp_path: Path) -> None:
    """M11: the ledger is away; saying it again is safe."""

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path, http={"kafka_timeout_s": 0.05}).start()
        assert (await say(harness, "claimed")).reason == "not_in_time"

    run(scenario())


def test_what_is_malformed_is_refused_with_the_reason(tmp_path: Path) -> None:
    async def scenario() -> None:
        harness = await HttpHarness(tmp_path).start()
        assert (await say(harness, "sold")).reason == "malformed_body"
        assert (await say(harness, "delivered")).reason == "malformed_body"
        assert (await say(harness, "expired", at_us=-1)).reason == "malformed_body"
        assert (await say(harness, "expired", agent="somebody")).reason == "malformed_body"
        assert (await say(harness, "expired", message_id="a%20b")).reason == "malformed_message_id"
        assert (await ask(harness, "x" * 129)).reason == "malformed_message_id"
        json = {"Content-Type": "application/json"}
        nameless = await harness.request("POST", f"/v1/message-presence/{ID}", data=b"{}", headers=json)
        assert nameless.reason == "nameless_client"
        deep, named = b'{"x":' + b"[" * 2_000 + b"]" * 2_000 + b"}", {"X-Client-Id": "c", **json}
        nested = await harness.request("POST", f"/v1/message-presence/{ID}", data=deep, headers=named)
        assert nested.reason == "malformed_body"
        assert (await harness.request("DELETE", f"/v1/message-presence/{ID}")).headers["Allow"] == "GET, POST"
        assert said(harness) == []

    run(scenario())


def test_the_view_is_bounded_and_forgets_what_is_kept_no_more(tmp_path: Path) -> None:
    """M9: "how long that record is kept"."""

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path, message_presences=2).start()
        for number in range(3):
            merged(harness, state(id=f"m{number}"), f"m{number}")
        await until(lambda: harness.node.counts["message_presence_forgotten"] == 1)
        assert len(harness.node.message_presence) == 2
        merged(harness, state(kept_until_ms=1))
        await until(lambda: harness.node.counts["message_presence_forgotten"] == 2)
        assert (await ask(harness)).status == 404
        harness.node.message_presence.forget(harness.clock() + 3600)
        assert len(harness.node.message_presence) == 1
        await harness.restart()
        assert len(harness.node.message_presence) == 2
        forgotten = harness.node.counts["message_presence_forgotten"]
        assert forgotten == 1, "what is over takes no place of others at a start"

    run(scenario())


def test_bytes_in_flight_are_limited_for_events(tmp_path: Path) -> None:
    """limits.in_flight_bytes, R9: with Kafka away, events must not pile up; none is lost that was not refused."""

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path, {"kafka_timeout_s": 0.05}, in_flight_bytes=1_000).start()
        harness.bus.held_stores = {harness.topics.message_presence}
        answers = [await say(harness, "attempting", reason="." * 600) for _ in range(6)]
        assert harness.home.in_flight_bytes <= 2_000
        assert [answer.reason for answer in answers] == ["not_in_time"] * 2 + ["too_many_in_flight"] * 4
        batch = {"events": [{"id": ID, "event": "attempting", "at_us": n} for n in range(2)]}
        refused = await harness.request("POST", "/v1/message-presence", json=batch, headers=AGENT)
        assert (refused.status, refused.reason) == (503, "too_many_in_flight")
        assert "Retry-After" in refused.headers
        assert (await harness.post("a")).reason == "too_many_in_flight", "one limit for all"
        harness.bus.held_stores = set()
        harness.bus.release()
        await until(lambda: not harness.bus.in_flight)
        assert harness.home.in_flight_bytes == 0
        answer = await harness.request("POST", "/v1/message-presence", json=batch, headers=AGENT)
        assert [result["stored"] for result in answer.json["results"]] == [True, True]
        assert [event.at_us for event in said(harness)] == [7, 7, 0, 1]

    run(scenario())


def test_the_states_of_one_answer_are_bounded(tmp_path: Path) -> None:
    """R9: what does not fit is named, so that nobody takes it for unknown; asked for again, it is answered."""

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path).start()
        ids = [f"m-{number}" for number in range(6)]
        for message_id in ids:
            merged(harness, state(id=message_id, holders=["h" * 900_000]), message_id)
        await until(lambda: len(harness.node.message_presence) == len(ids))

        async def query(*asked: str) -> Answer:
            body = json.dumps({"ids": asked})
            headers = {**AGENT, "Content-Type": "application/json"}
            return await harness.request("POST", "/v1/message-presence/query", data=body, headers=headers)

        first = await query("unknown", *ids)
        assert STATES_BYTES * 3 // 4 < len(first.body) <= STATES_BYTES + 1_000
        assert [*first.json["states"], *first.json["left_out"]] == ids
        second = await query(*first.json["left_out"])
        assert list(second.json["states"]) == first.json["left_out"]
        assert not second.json["left_out"]

    run(scenario())
