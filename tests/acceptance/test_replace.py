"""Routers replaced under load, and routers without news of the routes: nothing lost, nothing twice, in order."""

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from jobs.stack.topics import admin_client, topic_ends
from schemas.envelope import EVERYONE, ROUTED, Instruction
from schemas.readiness import read_json
from tests import draw
from tests.acceptance.stack import Client, Load, Stack
from tests.waiting import wait_for

RATE = 60.0
EGRESS = "ws.egress"
STALE_S = float(os.environ.get("TEST_STALE_ROUTES_S", "20"))
"""How long the routes query stays down after routers have noticed."""

NEW = (2, 5, 2)
"""How many subscribe anew: just after it has failed, then, and when it is back."""

REPLACE_TIMEOUT_S = 400
"""A JVM that starts beside a stack under load, and gives way to it, takes minutes on two slow cores."""


def check_clients(publisher: Client, *subscribers: Client) -> None:
    """Every message came to each, once, in the order in which it was sent; all at QoS 2."""
    wait_for(lambda: publisher.is_acknowledged, "every PUBLISH acknowledged", 90)
    for subscriber in subscribers:
        wait_for(lambda s=subscriber: len(s.received) == len(publisher.sent), "every message received", 90)
        assert max(subscriber.received.values()) == 1
        numbers = subscriber.order[publisher.paho._client_id.decode()]
        assert numbers == sorted(numbers)


def pids(stack: Stack, name: str) -> list[int]:
    return [process.pid for process in stack.state.processes if process.name == name]


@draw.killed_or_replaced
@pytest.mark.timeout(REPLACE_TIMEOUT_S + 200)
def test_replace_under_load(stack: Stack) -> None:
    """R5, R8: the new process is level before the old one goes, and is the supervised one from then on."""
    run = uuid.uuid4().hex[:8]
    subscriber, publisher = Client(stack, f"sub-{run}").connect(), Client(stack, f"pub-{run}").connect()
    subscriber.subscribe(f"replace/{run}/#", 2)
    (old,) = pids(stack, "router-active")
    with Load(lambda n: publisher.publish(f"replace/{run}/{n % 3}", 2), RATE):
        command = ("router", "replace", "--role", "active", "--timeout", str(REPLACE_TIMEOUT_S))
        said = stack.waystation(*command, timeout_s=REPLACE_TIMEOUT_S + 60).stdout
        sent = len(publisher.sent)
        wait_for(lambda: len(publisher.sent) > sent + RATE, "load after the replacement")
    check_clients(publisher, subscriber)
    assert "router-active: replaced" in said
    (new,) = pids(stack, "router-active")
    assert new != old
    stack.kill("router-active")
    publisher.disconnect()
    subscriber.disconnect()


@pytest.mark.timeout(300)
def test_a_replacement_that_does_not_become_level_changes_nothing(stack: Stack) -> None:
    """R5: the old process goes on; one sentence says why."""
    before = pids(stack, "router-active")
    done = stack.waystation("router", "replace", "--role", "active", "--timeout", "1", check=False)
    assert done.returncode == 1
    assert "its old process keeps running: the new process did not catch up within 1 s" in done.stderr
    assert "Traceback" not in done.stderr
    assert pids(stack, "router-active") == before


class Scopes:
    """How routers have decided, by what comes to `egress` from now on."""

    def __init__(self, stack: Stack) -> None:
        bootstrap = stack.state.bootstrap
        (end,) = topic_ends(admin_client(bootstrap, {}), EGRESS)
        config = {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False}
        self._consumer = Consumer(config)
        self._consumer.assign([TopicPartition(EGRESS, n, offset) for n, offset in enumerate(end.end_offsets)])
        self.last: dict[str, str] = {}

    def all_are(self, scope: str) -> bool:
        """Whether the latest word of both routers is `scope`."""
        for record in self._consumer.consume(1000, 0.2):
            headers = dict(record.headers() or [])
            self.last[headers["router"].decode()] = Instruction.decode(headers["instr"]).scope
        return self.last == dict.fromkeys(("active", "backup"), scope)

    def close(self) -> None:
        self._consumer.close()


def await_scope(stack: Stack, scope: str, what: str, timeout_s: float) -> None:
    """Waits until both routers decide so, of what they are given from now on."""
    scopes = Scopes(stack)
    try:
        wait_for(lambda: scopes.all_are(scope), what, timeout_s)
    finally:
        scopes.close()


@contextmanager
def routes_query_down(stack: Stack) -> Iterator[None]:
    """The query `routes` cannot go on, as its checkpoint cannot be read; all others do. Then it can, and is started
    again by itself."""
    checkpoints = stack.data / "tables" / "routes" / "_checkpoints"
    away = checkpoints.with_name("_gone")
    checkpoints.rename(away)
    checkpoints.write_text("in the way")
    try:
        wait_for(lambda: queries(stack)["routes"]["error"] is not None, "the query has failed", 60)
        yield
        assert [name for name, query in queries(stack).items() if query["error"]] == ["routes"]
    finally:
        checkpoints.unlink()
        away.rename(checkpoints)


class Arrivals:
    """One publisher to `count` topics in turn, QoS 2, all the time; to each topic comes a subscriber, one by one."""

    def __init__(self, stack: Stack, count: int) -> None:
        self._stack = stack
        self._run = uuid.uuid4().hex[:8]
        self._count = count
        self._since: list[int] = []
        self._subscribers: list[Client] = []
        self.publisher = Client(stack, f"pub-{self._run}").connect()
        self.old = Client(stack, f"old-{self._run}").connect()
        self.old.subscribe(f"stale{self._run}/#", 2)

    def load(self) -> Load:
        return Load(lambda number: self.publisher.publish(self._topic(number), 2), RATE)

    def come(self, times: int, for_s: float) -> None:
        """So many new clients subscribe, each to the next topic, spread over `for_s` of load."""
        for _ in range(times):
            subscriber = Client(self._stack, f"new{len(self._subscribers)}-{self._run}").connect()
            subscriber.subscribe(self._topic(len(self._subscribers)), 2)
            # What is sent from here on is sent after the SUBACK.
            self._since.append(len(self.publisher.sent))
            self._subscribers.append(subscriber)
            until = len(self.publisher.sent) + RATE * for_s / times
            wait_for(lambda until=until: len(self.publisher.sent) >= until, "the load goes on", for_s + 60)

    def check(self) -> None:
        """Each got all of its topic since its SUBACK; nothing came twice, or out of order; the old one got all."""
        check_clients(self.publisher, self.old)
        for number, (subscriber, since) in enumerate(zip(self._subscribers, self._since, strict=True)):
            sent = enumerate(self.publisher.sent)
            due = {payload for at, payload in sent if at >= since and at % self._count == number}
            wait_for(lambda s=subscriber, due=due: due <= s.received.keys(), f"all that is due to new{number}", 60)
            assert due
            assert max(subscriber.received.values()) == 1
            (numbers,) = subscriber.order.values()
            assert numbers == sorted(numbers)

    def leave(self) -> None:
        for client in (self.old, self.publisher, *self._subscribers):
            client.disconnect()

    def _topic(self, number: int) -> str:
        return f"stale{self._run}/{number % self._count}"


def queries(stack: Stack) -> dict[str, dict[str, Any]]:
    """What each query of the ledger last told."""
    files = (stack.data / "status").glob("*.json")
    found = {file.stem: read_json(file) or {} for file in files}
    return {name: status for name, status in found.items() if status.get("part") == "ledger"}


@draw.killed_or_replaced
@pytest.mark.timeout(600 + 2 * STALE_S)
def test_while_the_routes_query_is_down_new_subscriptions_get_everything(stack: Stack) -> None:
    """R3, R6: what cannot be known to be unwanted goes to every shard. Whoever subscribes anew, to what nobody had
    subscribed to, gets all that is published from its SUBACK on, once and in order: just after the query has failed,
    when routers still believe what they know, again and again when they do not any more, and when it is back.

    Twenty seconds are as good as ten minutes: `as_of + router.route_lead_s` is the one thing that grows old, and once
    it is past each message is decided in the same way. TEST_STALE_ROUTES_S=600 is ten.
    """
    arrivals = Arrivals(stack, sum(NEW))
    at_once, stale, again = NEW
    try:
        with arrivals.load():
            with routes_query_down(stack):
                arrivals.come(at_once, 2.0)
                await_scope(stack, EVERYONE, "routers that know of no routes", 120)
                arrivals.come(stale, STALE_S)
                await_scope(stack, EVERYONE, "routers that still know of none", 30)
            await_scope(stack, ROUTED, "routers that know the routes", 180)
            arrivals.come(again, 4.0)
        arrivals.check()
    finally:
        arrivals.leave()
