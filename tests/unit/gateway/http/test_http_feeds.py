"""Redundant feeds over HTTP: rights, answers, event streams and their ids (S1, S4, G11, R11)."""

import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from feeds.registry_records import AdministrativeResult, Assignment, RegistryKey
from gateway.access.acl import parse
from gateway.access.authorizer import Authorizer
from gateway.host.authenticator import Credentials
from gateway.shard.rules import FOR_EVER, ClientRules
from schemas.events import Event, encode
from schemas.feed_words import Slot
from tests.unit.feeds.feed_beats import beat
from tests.unit.gateway.http.http_harness import Answer, HttpHarness, Stream, run, until

JSON = {"Content-Type": "application/json"}
FEEDS: dict[str, Any] = {"names": ["radar", "secret"], "timeout_s": 5.0}
RULES = """
[[rules]]
subscribe.allow = ["feeds/radar/#"]
[[rules]]
users = ["operator"]
publish.allow = ["$feeds/+/switch", "$feeds/radar/administrative"]
subscribe.allow = ["feeds/#"]
"""


class AclAuthenticator:
    """A client's name is its user."""

    def __init__(self) -> None:
        self.authorizer = Authorizer(parse(RULES, "rules", default=False), Counter())

    async def admit(self, credentials: Credentials) -> ClientRules:
        user = credentials.client.rpartition(":")[2]
        return self.authorizer.rules(user, credentials.client, FOR_EVER)


class Radar:
    """The adapters of a feed, and a client that asks about it."""

    def __init__(self, harness: HttpHarness) -> None:
        self.harness = harness
        self._seq = 0

    def write(self, key: RegistryKey, record: Event) -> None:
        topic = self.harness.topics.feeds
        self.harness.bus.produce(topic, 0, key.encode(), encode(record), None, lambda *_: None)

    async def beat(self, *slots: Slot, **fields: Any) -> None:
        """Returns once the gateway knows."""
        self._seq += 1
        for slot in slots:
            self.write(RegistryKey("adapter", "radar", f"at-{slot}"), beat(slot, 1, self._seq, **fields))
        registry = self.harness.feeds.table.registry

        def is_known() -> bool:
            found = [registry.adapter("radar", f"at-{slot}") for slot in slots]
            return all(one is not None and one.beat.seq == self._seq for one in found)

        await until(is_known)

    async def ask(self, method: str, path: str, body: Any = None, user: str = "operator") -> Answer:
        headers = {"X-Client-Id": user} | ({} if body is None else JSON)
        data = None if body is None else json.dumps(body)
        return await self.harness.request(method, f"/v1/feeds{path}", data=data, headers=headers)

    @asynccontextmanager
    async def events(self, last: str = "", user: str = "reader", query: str = "") -> AsyncIterator[Stream]:
        headers = {"X-Client-Id": user} | ({"Last-Event-ID": last} if last else {})
        url = self.harness.url(f"/v1/feeds/radar/events{query}")
        async with self.harness.session.get(url, headers=headers) as response:
            assert response.status == 200, await response.text()
            yield Stream(response)


async def radar(tmp_path: Path, authenticator: Any = None, **feeds: Any) -> Radar:
    return Radar(await HttpHarness(tmp_path, authenticator=authenticator, feeds={**FEEDS, **feeds}).start())


def test_each_right_opens_its_requests_and_no_others(tmp_path: Path) -> None:
    """R11, S1: reading by feeds/<feed>/#, switching and administrative messages by rights of their own."""

    async def scenario() -> None:
        here = await radar(tmp_path, AclAuthenticator())
        await here.beat("active", "backup")
        message = {"stream": "radar@1", "payload": "x"}
        cases: list[tuple[str, str, Any, int, int]] = [
            ("GET", "/radar", None, 200, 200),
            ("GET", "/secret", None, 403, 200),
            ("GET", "/unknown", None, 403, 404),
            ("POST", "/radar/subscribers", {"subscriber": "s"}, 200, 409),
            ("POST", "/secret/subscribers", {"subscriber": "s"}, 403, 200),
            ("DELETE", "/radar/subscribers/s", None, 204, 404),
            ("DELETE", "/radar/subscribers/%2Fs", None, 400, 400),
            ("POST", "/radar/switch", {"active": "backup"}, 403, 200),
            ("POST", "/radar/administrative", message, 403, 202),
            ("POST", "/secret/administrative", message, 403, 403),
            ("GET", "/radar/administrative/x", None, 403, 404),
            ("GET", "/%23", None, 400, 400),
            ("GET", "/a%2Fb", None, 400, 400),
        ]
        for method, path, body, for_reader, for_operator in cases:
            for user, status in (("reader", for_reader), ("operator", for_operator)):
                answer = await here.ask(method, path, body, user)
                assert answer.status == status, (method, path, user, answer.body)
                await until(lambda: not here.harness.bus.in_flight)
        for user, names in (("reader", ["radar"]), ("operator", ["radar", "secret"])):
            assert [one["name"] for one in (await here.ask("GET", "", user=user)).json["feeds"]] == names

    run(scenario())


def test_the_list_the_pair_and_a_switch(tmp_path: Path) -> None:
    """S1: what a subscriber needs to read both streams, and what it sees after a switch."""

    async def scenario() -> None:
        here = await radar(tmp_path)
        down = (await here.ask("GET", "/radar")).json
        assert (down["state"], down["active"], down["pair"], down["assignment"]["revision"]) == ("down", None, None, 0)
        await here.beat("active", machine="m1", zone="a")
        await here.beat("backup", machine="m2", zone="b")
        [listed, _] = (await here.ask("GET", "")).json["feeds"]
        places = [
            {"slot": "active", "adapter": "at-active", "machine": "m1", "zone": "a"},
            {"slot": "backup", "adapter": "at-backup", "machine": "m2", "zone": "b"},
        ]
        assert (listed["state"], listed["active"], listed["backup"]) == ("redundant", *places)
        pair = (await here.ask("POST", "/radar/subscribers", {"subscriber": "s"})).json
        assert pair == {
            "feed": "radar",
            "topic": "feed.radar",
            "partitions": 2,
            "prefix": "",
            "revision": 0,
            "mode": "warm",
            "active": places[0],
            "backup": places[1],
            "ttl_s": 60,
            "reason": "",
        }
        switched = await here.ask("POST", "/radar/switch", {"active": "backup", "reason": "maintenance"})
        assert (switched.status, switched.json["revision"], switched.json["by"]) == (200, 1, "http:operator")
        pair = (await here.ask("POST", "/radar/subscribers", {"subscriber": "s", "mode": "cold"})).json
        assert (pair["active"], pair["backup"], pair["revision"]) == (places[1], places[0], 1)
        assert (await here.ask("GET", "/radar")).json["subscribers"] == 1
        await here.beat("active", state="gone")
        refused = await here.ask("POST", "/radar/switch", {"active": "active"})
        assert (refused.status, refused.reason) == (409, "slot_not_written")

    run(scenario())


def test_events_begin_with_the_state_and_resume_with_what_was_missed(tmp_path: Path) -> None:
    """S1: an id of this gateway resumes; any other, or one too old, begins with the state."""

    async def scenario() -> None:
        here = await radar(tmp_path, events_kept=3)
        async with here.events() as stream:
            first = await stream.event()
            assert (first.kind, first.data["state"]) == ("state", "down")
            await here.beat("active")
            came, single = await stream.events(2)
            assert (came.data["kind"], came.data["adapter"], single.data["kind"]) == (
                "adapter_came",
                "at-active",
                "single",
            )
            assert single.data["feed"]["active"]["adapter"] == "at-active"
        async with here.events(came.id) as stream:
            assert await stream.event() == single
            await here.beat("backup")
            assert [one.data["kind"] for one in await stream.events(2)] == ["adapter_came", "redundant"]
        for other in (first.id, "0" * 16 + "-1", first.id[:16] + "-99"):
            async with here.events(other) as stream:
                state = await stream.event()
                assert (state.kind, state.data["state"]) == ("state", "redundant")
                assert state.id.endswith("-4")
        async with here.events(query="?wait=0.05") as stream:
            assert [one.kind for one in await stream.rest()] == ["state"]

    run(scenario())


def test_event_streams_are_bounded_and_end_with_a_reason(tmp_path: Path) -> None:
    """S1, R11: a right that is taken away; a gateway that is stopped."""

    async def scenario() -> None:
        authenticator = AclAuthenticator()
        here = await radar(tmp_path, authenticator, event_streams=1)
        async with here.events() as stream:
            await stream.event()
            refused = await here.harness.request("GET", "/v1/feeds/radar/events", headers={"X-Client-Id": "reader"})
            assert (refused.status, refused.reason) == (503, "too_many_streams")
            authenticator.authorizer.replace(parse("", "rules", default=False))
            await here.beat("active")
            last = (await stream.rest())[-1]
            assert (last.kind, last.data) == ("end", {"reason": "not_authorized"})
        authenticator.authorizer.replace(parse(RULES, "rules", default=False))
        async with here.events() as stream:
            await stream.event()
            await here.harness.http.stop()
            assert (await stream.event()).data == {"reason": "server_shutting_down"}

    run(scenario())


def test_an_administrative_message_has_a_place_where_its_result_comes(tmp_path: Path) -> None:
    """S4."""

    async def scenario() -> None:
        here = await radar(tmp_path)
        body = {"stream": "radar@7", "payload_base64": "AP8=", "lead": 10}
        asked = await here.ask("POST", "/radar/administrative", body)
        place = asked.headers["Location"].removeprefix("/v1/feeds")
        assert (asked.status, asked.json["outcome"]) == (202, "pending")
        assert place == f"/radar/administrative/{asked.json['id']}"
        found = here.harness.feeds.table
        await until(lambda: found.exchange("radar", asked.json["id"]))
        exchange = found.exchange("radar", asked.json["id"])
        assert exchange is not None
        assert exchange.request is not None
        assert (exchange.request.payload, exchange.request.lead, exchange.request.stream) == (b"\0\xff", 10, "radar@7")
        assert (await here.ask("GET", place)).json["outcome"] == "pending"
        key = RegistryKey("result", "radar", asked.json["id"])
        here.write(key, AdministrativeResult(outcome="alone", reason="the backup is behind", after=9, part=1))
        await until(lambda: exchange.result)
        assert (await here.ask("GET", place)).json | {"id": ""} == {
            "id": "",
            "outcome": "alone",
            "reason": "the backup is behind",
            "after": 9,
            "part": 1,
        }
        for wrong in ({"stream": "radar@7"}, body | {"payload": "x"}, body | {"stream": "radar"}, body | {"lead": 0}):
            refused = await here.ask("POST", "/radar/administrative", wrong)
            assert (refused.status, refused.reason) == (400, "malformed_body"), wrong
        large = {"stream": "radar@7", "payload": "é" * 100_000}
        assert (await here.ask("POST", "/radar/administrative", large)).status == 413

    run(scenario())


def test_kafka_that_does_not_answer_is_said_to_the_client(tmp_path: Path) -> None:
    """S1: within http.kafka_timeout_s; the request may be repeated."""

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path, {"kafka_timeout_s": 0.05}, feeds=FEEDS).start()
        here = Radar(harness)
        await here.beat("active", "backup")
        harness.bus.held_stores.add(harness.topics.feeds)
        for path, body in (
            ("/radar/switch", {"active": "backup"}),
            ("/radar/subscribers", {"subscriber": "s"}),
            ("/radar/administrative", {"stream": "r@1", "payload": ""}),
        ):
            answer = await here.ask("POST", path, body)
            assert (answer.status, answer.reason) == (503, "kafka_timeout")
        harness.bus.held_stores.clear()
        harness.bus.release()
        await until(lambda: isinstance(harness.feeds.table.registry.assignment("radar"), Assignment))

    run(scenario())
