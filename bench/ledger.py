"""The ledger as a process: how many events all its queries take together, and how fresh presence is (R12).

A backlog is taken by the running application, warm, with nothing else on the machine but the broker: the process is
stopped (SIGSTOP) while the topics are filled.
"""

import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from urllib.error import HTTPError

import psutil
from confluent_kafka import Consumer, Producer, TopicPartition
from prometheus_client.parser import text_string_to_metric_families

from bench.figures import Figures
from bench.life import life
from bench.processes import PART, cpu_s, family, fresh_directory, running
from jobs.stack.topics import admin_client, create_topics
from schemas.events import MessagePresenceEvent, PresenceEvent, decode, encode
from schemas.identity import partition_of
from schemas.states import GATEWAY_MARK, PresenceState
from schemas.topics import DAY_MS, Topics

PARTITIONS, SHARDS = 2, 4
READY_S = 300.0
TAKEN_S = 900.0
LOOK_S = 0.25
RARE = 10
"""One in so many messages comes with an event of presence, of the mesh, and of routes."""

PRESENCE_RATE = 1000.0
CLIENTS = 20_000
WARM_S = 60.0
QUIET_S = 60.0

# The backlog alone is to decide when a batch begins.
EAGER = {
    "WAYSTATION_LEDGER__TRIGGER_S": "1.0",
    "WAYSTATION_LEDGER__COMPLETION_TRIGGER_S": "1.0",
    "WAYSTATION_PRESENCE__TABLE_TRIGGER_S": "5.0",
}


class LedgerBench:
    def __init__(self, bootstrap: str, figures: Figures) -> None:
        self._bootstrap = bootstrap
        self._figures = figures

    def throughput(self, warm: int, messages: int) -> None:
        """Records `ledger_events_per_s`: records taken by all queries together, each as often as a query reads it, and
        `ledger_messages_per_s`; `messages` in the backlog, after `warm` others."""
        with self._running(EAGER) as (process, topics, metrics):
            self._await_taken(metrics, taken(metrics), self._fill(topics, 0, warm))
            before = taken(metrics)
            signal_all(process, psutil.Process.suspend)
            wanted = self._fill(topics, warm, messages)
            cpu_before, began = cpu_of_all(process), time.monotonic()
            signal_all(process, psutil.Process.resume)
            self._await_taken(metrics, before, wanted)
            seconds = time.monotonic() - began
            self._figures.add("ledger_events_per_s", round(sum(wanted.values()) / seconds))
            self._figures.add("ledger_messages_per_s", round(messages / seconds))
            cpu_us = (cpu_of_all(process) - cpu_before) / sum(wanted.values()) * 1e6
            self._figures.add("ledger_cpu_us_per_event", round(cpu_us, 1))

    def presence(self, seconds: float) -> None:
        """Records `presence_p50_ms` …: from an event's time to its state's receipt, 1,000 events a second, each the
        coming or going of a client; and `presence_cores`, what the ledger takes for it. The minute before, while the
        JVM is cold, is `presence_cold_p50_ms` …"""
        with self._running({}) as (process, topics, _):
            consumer = Consumer(
                {"bootstrap.servers": self._bootstrap, "group.id": "unused", "enable.auto.commit": False}
            )
            consumer.assign([TopicPartition(topics.presence_state, number, 0) for number in range(PARTITIONS)])
            producer = Producer({"bootstrap.servers": self._bootstrap, "linger.ms": 0, "acks": "all"})
            cold_ms = self._come_and_go(producer, consumer, topics, 0, WARM_S)
            before = cpu_of_all(process)
            fresh_ms = self._come_and_go(producer, consumer, topics, int(WARM_S * PRESENCE_RATE), seconds)
            self._figures.add("presence_cores", round((cpu_of_all(process) - before) / seconds, 2))
            consumer.close()
        self._figures.latencies("presence_cold", cold_ms)
        self._figures.latencies("presence", fresh_ms)

    @contextmanager
    def _running(self, settings: Mapping[str, str]) -> Iterator[tuple[psutil.Process, Topics, str]]:
        """A ledger over fresh topics and tables, all its queries at work; and where its metrics are."""
        topics = Topics(f"ledger{time.monotonic_ns()}.")
        create_topics(admin_client(self._bootstrap, {}), topics.declared(PARTITIONS, SHARDS, DAY_MS))
        with (
            fresh_directory() as data,
            running(data, self._bootstrap, topics.prefix, "jobs.ledger", settings=settings) as process,
        ):
            metrics = f"http://{process.addresses[f'{PART}-metrics']}"
            wait(lambda: all_run(metrics), "all queries of the ledger run", READY_S)
            yield psutil.Process(process.pid), topics, metrics

    def _fill(self, topics: Topics, first: int, count: int) -> dict[str, int]:
        """Puts what `count` messages leave on the topics; by query, how many records it has to take."""
        producer = Producer(
            {"bootstrap.servers": self._bootstrap, "linger.ms": 20, "queue.buffering.max.messages": 1_000_000}
        )
        begin_ms = int(time.time() * 1000) - (first + count) * 5 - 1000
        wanted = dict.fromkeys(("messages", "outcomes", "completion", "completions"), count)
        wanted["instructions"] = 2 * count
        rare = ("presence_state", "presence_history", "message_presence_state", "message_presence_history", "routes")
        wanted |= dict.fromkeys(rare, 0)
        for one in life(range(first, first + count), PARTITIONS, SHARDS, begin_ms):
            if one.topic == "completion" or (one.topic in ("presence", "routes") and one.number % RARE):
                continue
            name = topics.prefix + one.topic
            headers: list[tuple[str, bytes]] = list(one.headers or [])
            producer.produce(name, one.value, one.key, one.partition, headers=headers)  # type: ignore[arg-type]
            if one.topic == "presence":
                for query in rare[:4]:
                    wanted[query] += 1
                event = MessagePresenceEvent(
                    id=f"mesh-{one.number}", event="attempting", agent="ship", at_us=one.at_ms * 1000, origin="ship"
                )
                key = event.id.encode()
                producer.produce(topics.message_presence, encode(event), key, partition_of(event.id, PARTITIONS))
                wanted["routes"] += 1
            if one.number % 10_000 == 0:
                producer.poll(0)
        producer.flush(120)
        return wanted

    def _await_taken(self, metrics: str, before: Mapping[str, float], wanted: Mapping[str, int]) -> None:
        def is_taken() -> bool:
            now = taken(metrics)
            return all(now.get(query, 0) - before.get(query, 0) >= count for query, count in wanted.items())

        wait(is_taken, f"all is taken of {wanted}", TAKEN_S)

    def _come_and_go(
        self, producer: Producer, consumer: Consumer, topics: Topics, first: int, seconds: float
    ) -> list[float]:
        """Events at the rate for `seconds`; how old each state of theirs was when it was received, ms."""
        began, sent, fresh_ms = time.time(), 0, list[float]()
        until = began + seconds
        quiet_since = until
        while (now := time.time()) < until or (len(fresh_ms) < sent and now - quiet_since < QUIET_S):
            while now < until and sent < (now - began) * PRESENCE_RATE:
                number = first + sent
                round_, of_client = divmod(number, CLIENTS)
                client = f"client-{of_client}"
                event = PresenceEvent(
                    client=client,
                    event="lost" if round_ % 2 else "connected",
                    gateway=f"gateway-{of_client % 3}",
                    epoch=1 + round_ // 2,
                    seq=round_ % 2,
                    at_us=int(time.time() * 1e6),
                )
                producer.produce(topics.presence, encode(event), client, partition_of(client, PARTITIONS))
                sent += 1
            producer.poll(0)
            for record in consumer.consume(1000, 0.005):
                key, value = record.key() or b"", record.value()
                if record.error() is None and value and not key.startswith(GATEWAY_MARK.encode()):
                    at_us = decode(PresenceState, value).at_us
                    if at_us >= began * 1e6:
                        fresh_ms.append(time.time() * 1000 - at_us / 1000)
                        quiet_since = max(until, time.time())
        if len(fresh_ms) != sent:
            raise RuntimeError(f"{len(fresh_ms)} states came of {sent} events")
        return fresh_ms


def wait(condition: Callable[[], bool], what: str, timeout_s: float) -> None:
    """Looks seldom: each look is work for the process that is measured."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(f"not within {timeout_s:g} s: {what}")
        time.sleep(LOOK_S)


def signal_all(process: psutil.Process, send: Callable[[psutil.Process], None]) -> None:
    """To the whole family; a helper of Hadoop's may be gone before it is reached."""
    for each in family(process):
        with suppress(psutil.NoSuchProcess):
            send(each)


def cpu_of_all(process: psutil.Process) -> float:
    return sum(map(cpu_s, family(process)))


def all_run(metrics: str) -> bool:
    try:
        with urllib.request.urlopen(f"{metrics}/readyz", timeout=5) as answer:
            return bool(answer.status == 200)
    except HTTPError:
        return False


def taken(metrics: str) -> dict[str, float]:
    """Records that each query has taken."""
    with urllib.request.urlopen(f"{metrics}/metrics", timeout=30) as answer:
        metrics_of = text_string_to_metric_families(answer.read().decode())
    samples = [sample for metric in metrics_of for sample in metric.samples]
    return {one.labels["query"]: one.value for one in samples if one.name == "waystation_query_rows_total"}
