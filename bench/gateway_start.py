"""How long a gateway's start takes, with its disk and without: sessions and queued messages stand on Kafka."""

import os
import shutil
import time
from collections.abc import Iterator

from confluent_kafka import Producer

from bench.figures import Figures
from bench.gateway import LEAD_S, environment_of
from bench.processes import fresh_directory
from gateway.shard.messages import Message
from gateway.shard.spool_batch import SpoolBatch
from gateway.shard.spool_records import Marker, records_of
from harness.processes import Program
from jobs.stack.topics import admin_client, create_topics, declared_topics
from schemas.envelope import Instruction
from schemas.identity import route_key, shard_of
from schemas.session_log import SessionKey, SessionOpened, Subscribed, SubscriptionRecord, encode
from schemas.settings import KafkaSettings, process_settings
from schemas.topics import Topics

SESSIONS, ROWS = 20_000, 100_000
PAYLOAD = b"x" * 256
QUEUED = 500
"""Messages queued for each of the sessions that have any."""

Sent = tuple[str, int, bytes, bytes | None]


class StartBench:
    """Measures over one broker."""

    def __init__(self, bootstrap: str, figures: Figures) -> None:
        self._bootstrap = bootstrap
        self._figures = figures

    def run(self) -> None:
        """Records `start_without_disk_ms` and `start_with_disk_ms`: from starting the process until it is ready, with
        20,000 sessions and 100,000 queued messages; and `start_empty_ms`, with none."""
        for name, fill in (("empty", False), ("without_disk", True)):
            with fresh_directory() as data:
                environment = environment_of(data, self._bootstrap)
                settings = process_settings(environment)
                kafka = settings.kafka
                create_topics(admin_client(self._bootstrap, {}), declared_topics(settings))
                if fill:
                    self._fill(kafka)
                gateway = Program(data, "gateway", "gateway", environ={**os.environ, **environment})
                self._figures.add(f"start_{name}_ms", started_ms(gateway))
                gateway.stop()
                if fill:
                    self._figures.add("start_with_disk_ms", started_ms(gateway))
                    gateway.kill()
                    shutil.rmtree(data / "spool")
                    self._figures.add("start_after_kill_without_disk_ms", started_ms(gateway))
                    gateway.stop()

    def _fill(self, kafka: KafkaSettings) -> None:
        producer = Producer({"bootstrap.servers": self._bootstrap, "linger.ms": 5})
        for topic, partition, key, value in (*sessions(kafka), *spools(kafka)):
            while True:
                try:
                    producer.produce(topic, value, key, partition)
                    break
                except BufferError:
                    producer.poll(0.1)
        assert not producer.flush(120)


def started_ms(gateway: Program) -> int:
    """From starting the process until it serves clients."""
    began = time.monotonic()
    gateway.start()
    return round((time.monotonic() - began) * 1000)


def sessions(kafka: KafkaSettings) -> Iterator[Sent]:
    """Each with a subscription whose route has long been in effect."""
    topic, now_ms = Topics(kafka.prefix).sessions, int(time.time() * 1000)
    since_ms = now_ms - int(10 * LEAD_S * 1000)
    for number in range(SESSIONS):
        client = f"client-{number}"
        shard = shard_of(client, kafka.shards)
        subscription = SubscriptionRecord(f"{route_key('a/b')}/{number}", 1, False, False, 0, None, since_ms, {})
        opened = SessionOpened(client, 86_400, 0, now_ms, None, born_us=1)
        for kind, record in (("o", opened), ("s", Subscribed([subscription]))):
            yield topic, shard, SessionKey(client, kind).encode(), encode(record)


def spools(kafka: KafkaSettings) -> Iterator[Sent]:
    """QUEUED messages for some of the sessions."""
    topic = Topics(kafka.prefix).spool
    batches = [SpoolBatch() for _ in range(kafka.shards)]
    for number in range(ROWS):
        client = f"client-{number // QUEUED}"
        batch = batches[shard_of(client, kafka.shards)]
        mid = len(batch.messages) + 1
        place = (number % kafka.ingress_partitions, number, int(time.time() * 1000))
        message = Message(f"{number:032x}", "sender", "a/b", PAYLOAD, 1, False, None, b"\0", *place)
        batch.messages.append((mid, message, [Instruction(place[0], number, 0, 1, place[2])]))
        batch.rows.append((mid, mid, f"{client}\0{1}", 1, False, (), False))
    for shard, batch in enumerate(batches):
        last = len(batch.rows)
        for key, value in records_of(batch, Marker(last, last, {})):
            yield topic, shard, key, value
