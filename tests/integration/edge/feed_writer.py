"""Two adapters as far as a subscriber sees them: they write copies and beats to a real broker."""

import time
from collections.abc import Iterable

from confluent_kafka import Producer

from feeds import passed
from feeds.message import Feed, FeedMessage, encode, partition_of, stream_id, topic_of
from feeds.pairing import FeedSource, SourceFormat
from feeds.registry_records import SLOTS, AdapterBeat, Assignment, RegistryKey, Slot
from jobs.stack.topics import admin_client, create_topics
from schemas.events import encode as encode_event
from schemas.topics import DAY_MS, Topics

NAME = "radar"
STREAM = stream_id("radar", 0)
SOURCE = FeedSource(format=SourceFormat.MODE_S, name="radar", sequencer="s")
FLUSH_S = 30.0


def create_feed(bootstrap: str, prefix: str, partitions: int = 2) -> None:
    """The topics of one feed."""
    topics = Topics(prefix)
    wanted = (topics.feeds, topics.feed(NAME))
    declared = topics.declared(1, 1, DAY_MS, (NAME,), partitions)
    create_topics(admin_client(bootstrap, {}), [one for one in declared if one.name in wanted])


class Slots:
    """Writes to the slots of the feed NAME; `with_beats` by default, before each write that is a beat's time later."""

    def __init__(self, bootstrap: str, prefix: str, partitions: int = 2) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": "all"})
        self._prefix, self._partitions = prefix, partitions
        self._topic = topic_of(prefix, NAME)
        self._written = 0
        self._revision = 0

    def write(self, feed: Feed, sequences: Iterable[int], stream: str = STREAM, payload: bytes | None = None) -> None:
        """Copies, in this order, at once."""
        for sequence in sequences:
            self._written += 1
            message = FeedMessage(
                stream,
                sequence,
                0,
                self._written,
                time.time_ns() // 1000,
                f"a{int(feed)}",
                b"%d" % sequence if payload is None else payload,
            )
            self._produce(feed, stream, *encode(message))

    def passed(self, feed: Feed, sequence: int, stream: str = STREAM) -> None:
        """The feed brings nothing more up to `sequence`."""
        record = passed.PassedRecord(stream, sequence, self._written, 0, f"a{int(feed)}")
        self._produce(feed, stream, *passed.encode(record))

    def beat(self, feed: Feed, state: str = "up") -> None:
        self._written += 1
        beat = AdapterBeat(
            boot=1,
            seq=self._written,
            slot=SLOTS[feed],
            state=state,  # type: ignore[arg-type]
            at_us=0,
            machine=f"m{int(feed)}",
            source=SOURCE,
        )
        key = RegistryKey("adapter", NAME, f"a{int(feed)}").encode()
        self._producer.produce(Topics(self._prefix).feeds, encode_event(beat), key)
        self._producer.poll(0)

    def assign(self, slot: Slot) -> None:
        self._revision += 1
        record = Assignment(active=slot, revision=self._revision, reason="asked", by="me", at_us=0)
        self._producer.produce(
            Topics(self._prefix).feeds, encode_event(record), RegistryKey("assignment", NAME).encode()
        )
        self.flush()

    def flush(self) -> None:
        """All that was written is in the log."""
        assert self._producer.flush(FLUSH_S) == 0

    def _produce(
        self, feed: Feed, stream: str, key: bytes, headers: list[tuple[str, bytes]], value: bytes | None
    ) -> None:
        partition = partition_of(feed, stream, self._partitions)
        while True:
            try:
                self._producer.produce(self._topic, value, key, partition, headers=headers)  # type: ignore[arg-type]
                break
            except BufferError:
                self._producer.poll(0.1)
        self._producer.poll(0)
