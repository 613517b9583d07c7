"""Routers replaced under load, and routers without news of the routes: nothing lost, nothing twice, in order."""

import os
import signal
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer, TopicPartition

from jobs.stack.topics import admin_client, topic_ends
from schemas.envelope import EVERYONE, ROUTED, Instruction
from tests.acceptance.stack import Client, Load, Stack
from tests.waiting import wait_for

RATE = 60.0
EGRESS = "ws.egress"
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
    assert "the old process goes on: the new process was not level within 1 s" in done.stderr
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


@contextmanager
def standing_still(stack: Stack, name: str) -> Iterator[None]:
    """A part and what it has started take no step, and are not dead."""
    (pid,) = pids(stack, name)
    os.killpg(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.killpg(pid, signal.SIGCONT)


@pytest.mark.timeout(300)
def test_without_news_of_the_routes_everybody_gets_everything(stack: Stack) -> None:
    """R3, R6: what cannot be known to be unwanted goes to every shard; old and new subscriptions get it once, in order;
    when routes are folded again, decisions are by the routes again."""
    run = uuid.uuid4().hex[:8]
    topic = f"stale{run}/a"
    old, new = Client(stack, f"old-{run}").connect(), Client(stack, f"new-{run}").connect()
    publisher = Client(stack, f"pub-{run}").connect()
    old.subscribe(f"stale{run}/#", 2)
    scopes = Scopes(stack)
    try:
        with standing_still(stack, "ledger"):
            new.subscribe(f"stale{run}/+", 2)
            with Load(lambda _: publisher.publish(topic, 2), RATE):
                wait_for(lambda: scopes.all_are(EVERYONE), "routers that know of no routes", 120)
            check_clients(publisher, old, new)
        with Load(lambda _: publisher.publish(topic, 2), RATE):
            wait_for(lambda: scopes.all_are(ROUTED), "routers that know the routes", 120)
        check_clients(publisher, old, new)
    finally:
        scopes.close()
    for client in (old, new, publisher):
        client.disconnect()
