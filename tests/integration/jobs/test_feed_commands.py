"""`waystation feed …` with a gateway process and a real broker; the adapters are played by their records (S1, S3)."""

import json
import os
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from feeds.message import Feed, FeedMessage, partition_of, stream_id
from feeds.message import encode as encode_message
from feeds.registry_records import RegistryKey, feed_of
from harness.processes import Gateway
from jobs.stack.process import wait_until
from jobs.stack.topics import admin_client, create_topics
from schemas.events import encode
from schemas.feed_words import Slot
from schemas.topics import DAY_MS, Topics
from tests import draw
from tests.conftest import LocalBroker
from tests.unit.feeds.feed_beats import beat

pytestmark = draw.over_processes

COMMAND = (sys.executable, "-m", "jobs.cli.main")
PATIENCE_S = 60.0
STREAM = stream_id("radar", 0)
LOST: dict[Slot, set[int]] = {"active": {5, 6, 15}, "backup": {10, 15, 30}}
FIELDS = ("name", "state", "active", "backup", "revision")
PATIENT = {"WAYSTATION_FEEDS__TIMEOUT_S": "3"}
"""A machine that stands still for a second is no death of an adapter."""
FIRST, LAST = 20, 40
"""The active adapter dies after message FIRST; the backup goes on up to LAST."""


class Adapters:
    """Two adapters: their heartbeats five times a second, from a thread, and their copies."""

    def __init__(self, broker: LocalBroker, topics: Topics) -> None:
        self._producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 1})
        self._topics = topics
        self._seq = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.alive: set[Slot] = {"active", "backup"}

    def _run(self) -> None:
        while not self._stopping.wait(0.1):
            self._seq += 1
            for slot in list(self.alive):
                record = beat(slot, 1, self._seq, machine=f"m-{slot}", streams={STREAM: [self._seq, 0]})
                self.put(RegistryKey("adapter", "radar", f"at-{slot}").encode(), encode(record))

    def put(self, key: bytes, value: bytes) -> None:
        self._producer.produce(self._topics.feeds, value, key)
        assert self._producer.flush(PATIENCE_S) == 0

    def write(self, slot: Slot, numbers: range) -> None:
        """The copies of a slot, but for those that it loses."""
        feed: Feed = feed_of(slot)
        for number in numbers:
            if number not in LOST[slot]:
                message = FeedMessage(STREAM, number, 0, number, 0, f"at-{slot}", b"%d" % number)
                key, headers, value = encode_message(message)
                partition = partition_of(feed, STREAM, 2)
                self._producer.produce(self._topics.feed("radar"), value, key, partition, headers=list(headers))
        assert self._producer.flush(PATIENCE_S) == 0

    @contextmanager
    def beating(self) -> Iterator["Adapters"]:
        self._thread.start()
        try:
            yield self
        finally:
            self._stopping.set()
            self._thread.join()


class Site:
    """A gateway, and the command line that is to ask it."""

    def __init__(self, gateway: Gateway, broker: LocalBroker, prefix: str, data: Path) -> None:
        self._gateway = gateway
        self._environ = {
            **os.environ,
            "WAYSTATION_KAFKA__BOOTSTRAP": broker.bootstrap,
            "WAYSTATION_KAFKA__PREFIX": prefix,
            "WAYSTATION_DATA": str(data),
        }
        self._at = ("--address", f"127.0.0.1:{gateway.http_port}")

    def run(self, *words: str, at: bool = True) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*COMMAND, "feed", *words, *(self._at if at else ())],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
            env=self._environ,
        )

    def json(self, *words: str) -> Any:
        done = self.run(*words, "--format", "json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def lines(self, *words: str) -> list[dict[str, Any]]:
        done = self.run(*words, at=False)
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    def get(self, path: str) -> Any:
        url = f"http://127.0.0.1:{self._gateway.http_port}{path}"
        with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
            return json.load(answer)

    def state(self) -> Any:
        return self.get("/v1/feeds/radar")

    def metrics(self) -> str:
        port = self._gateway.port_of("metrics")
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE_S) as answer:
            return str(answer.read().decode())

    @contextmanager
    def subscriber(self, *words: str) -> "Iterator[subprocess.Popen[str]]":
        argv = [*COMMAND, "feed", "subscribe", "radar", *words, *self._at]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=self._environ) as process:
            try:
                yield process
            finally:
                process.kill()


@pytest.fixture
def topics(broker: LocalBroker, unique_prefix: str) -> Topics:
    found = Topics(unique_prefix)
    create_topics(admin_client(broker.bootstrap, {}), found.declared(2, 4, DAY_MS, ["radar"], 2))
    return found


def messages(lines: list[dict[str, Any]]) -> list[int]:
    return [one["sequence"] for one in lines if one["type"] == "message"]


def test_a_subscriber_loses_nothing_when_the_active_adapter_dies(
    broker: LocalBroker, topics: Topics, tmp_path: Path
) -> None:
    """S1, S3: what either adapter had comes once and in order; gateways switch; a warm and a cold subscriber; then the
    log is replayed. Records that are not valid are counted."""
    data = tmp_path / "data"
    data.mkdir()
    gateway = Gateway(data, broker.bootstrap, topics.prefix, **PATIENT)
    adapters = Adapters(broker, topics)
    both = LOST["active"] & LOST["backup"]
    count = LAST + 1 - len(both | {number for number in LOST["backup"] if number > FIRST})
    with gateway.running(), adapters.beating():
        site = Site(gateway, broker, topics.prefix, data)
        adapters.put(b"adapter/radar/evil", b"[]")
        assert wait_until(lambda: any(f["state"] == "redundant" for f in site.get("/v1/feeds")["feeds"]), PATIENCE_S)
        with site.subscriber("--count", str(count)) as warm, site.subscriber("--cold", "--count", str(count)) as cold:
            assert warm.stdout is not None
            assert cold.stdout is not None
            for process in (warm, cold):
                assert process.stdout is not None
                begun = json.loads(process.stdout.readline())
                assert (begun["type"], begun["state"], begun["active"]) == ("feed", "redundant", "active")
            assert wait_until(lambda: site.state()["subscribers"] == 2, PATIENCE_S)
            adapters.write("active", range(FIRST + 1))
            adapters.write("backup", range(LAST + 1))
            adapters.alive.discard("active")
            printed = {
                name: [json.loads(line) for line in process.stdout]
                for name, process in (("warm", warm), ("cold", cold))
                if process.stdout is not None
            }
            assert [warm.wait(PATIENCE_S), cold.wait(PATIENCE_S)] == [0, 0]
        lost = sorted(both | {number for number in LOST["backup"] if number > FIRST})
        for name, lines in printed.items():
            assert messages(lines) == [n for n in range(LAST + 1) if n not in lost], name
            given_up = [n for one in lines if one["type"] == "lost" for n in range(one["first"], one["last"] + 1)]
            assert given_up == lost, name
        assert wait_until(lambda: site.state()["revision"] == 1, PATIENCE_S)
        assert site.state()["subscribers"] == 0, "they have unsubscribed"
        assert "waystation_feed_records_skipped_total 1.0" in site.metrics()
        _administer(site, adapters)
        argv = [*COMMAND, "subscribe", "$feeds/#", "--count", "1", "--format", "raw"]
        argv += ["--address", f"127.0.0.1:{gateway.port}"]
        by_mqtt = subprocess.run(argv, capture_output=True, timeout=PATIENCE_S, check=True)
        told, asked = json.loads(by_mqtt.stdout), site.state()
        assert [told[name] for name in FIELDS] == [asked[name] for name in FIELDS]
        replayed = site.lines("replay", "radar", "--stream", STREAM, "--sequence", "3", "--to", "35")
        assert messages(replayed) == [n for n in range(3, 36) if n not in lost]


def _administer(site: Site, adapters: Adapters) -> None:
    assignment = site.state()["assignment"]
    assert (assignment["active"], assignment["automatic"]) == ("backup", True)
    refused = site.run("switch", "radar", "active")
    assert refused.returncode == 1
    assert "no adapter that is alive writes the active stream" in refused.stderr
    adapters.alive.add("active")
    assert wait_until(lambda: site.state()["state"] == "redundant", PATIENCE_S)
    assert site.json("switch", "radar", "active", "--reason", "repaired")["revision"] == 2
