"""Two adapters as far as a subscriber sees them: they write copies and beats to a real broker."""

import threading
import time
from collections.abc import Iterable
from random import Random
from typing import Self

from confluent_kafka import Producer

from feeds import passed
from feeds.message import Feed, FeedMessage, encode, partition_of, stream_id, topic_of
from feeds.pairing import FeedSource, SourceFormat
from feeds.registry_records import SLOTS, AdapterBeat, Assignment, RegistryKey
from jobs.stack.topics import admin_client, create_topics
from schemas.events import encode as encode_event
from schemas.feed_words import Slot
from schemas.topics import DAY_MS, Topics

NAME = "radar"
STREAM = stream_id("radar", 0)
SOURCE = FeedSource(format=SourceFormat.MODE_S, name="radar", sequencer="s")
FLUSH_S = 30.0


def create_feed(bootstrap: str, prefix: str, partitions: int = 2, name: str = NAME) -> None:
    """The topics of one feed."""
    topics = Topics(prefix)
    wanted = (topics.feeds, topics.feed(name))
    declared = topics.declared(1, 1, DAY_MS, (name,), partitions)
    create_topics(admin_client(bootstrap, {}), [one for one in declared if one.name in wanted])


class Slots:
    """Writes to the slots of a feed."""

    def __init__(self, bootstrap: str, prefix: str, partitions: int = 2, name: str = NAME) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": "all", "log_level": 2})
        self._prefix, self._partitions = prefix, partitions
        self._topic = topic_of(prefix, name)
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


class Load:
    """A source with `rate` messages a second, and two adapters with burst losses that write them, on a thread. `lost`
    is what each adapter has lost, or was away for. Whoever stops one waits until the thread has noticed."""

    def __init__(self, slots: Slots, rate: float, seed: str, losses: tuple[float, float] = (0.0025, 0.25)) -> None:
        self._slots, self._rate = slots, rate
        self._draws = [Random(f"{seed} {int(feed)}") for feed in Feed]
        self._begins, self._ends = losses
        self._is_bad = [False, False]
        self._cursor = [0, 0]
        self._was_silent = [False, False]
        self.alive = [True, True]
        """Adapters that follow the source; one that comes back has missed what was sent meanwhile."""
        self.frozen = [False, False]
        """Adapters that stand still; one that goes on has all that was sent meanwhile."""
        self.lost: list[set[int]] = [set(), set()]
        self.sent = 0
        self.last: int | None = None
        """The number of the last message, once it is known."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Both adapters write the last message, which so is lost by none, and say that they have passed all."""
        if self._thread.is_alive():
            self._stop.set()
            self._thread.join()

    @property
    def either(self) -> list[int]:
        """The numbers that one of the adapters at least has written."""
        return [number for number in range(self.sent) if number not in self.lost[0] & self.lost[1]]

    def _run(self) -> None:
        began = time.monotonic()
        beat_at = began
        while not self._stop.is_set():
            now = time.monotonic()
            self.sent = int((now - began) * self._rate)
            for feed in Feed:
                self._follow(feed)
            if now >= beat_at:
                beat_at += 0.2
                for feed in Feed:
                    if self.alive[feed] and not self.frozen[feed]:
                        self._slots.beat(feed)
            time.sleep(0.002)
        self.last = self.sent
        for feed in Feed:
            self._follow(feed)
            self._slots.write(feed, [self.sent])
            self._slots.passed(feed, self.sent)
        self.sent += 1
        self._slots.flush()

    def _follow(self, feed: Feed) -> None:
        numbers = range(self._cursor[feed], self.sent)
        if not self.alive[feed]:
            self.lost[feed].update(numbers)
            self._was_silent[feed] = True
        elif self.frozen[feed]:
            self._was_silent[feed] = True
            return
        else:
            if self._was_silent[feed]:  # an adapter says that it is there before it writes
                self._slots.beat(feed)
                self._slots.flush()
                self._was_silent[feed] = False
            kept = [number for number in numbers if not self._is_lost(feed)]
            self.lost[feed].update(set(numbers) - set(kept))
            self._slots.write(feed, kept)
        self._cursor[feed] = self.sent

    def _is_lost(self, feed: Feed) -> bool:
        """By the model of Gilbert and Elliott: in the bad state all is lost."""
        draw = self._draws[feed].random()
        self._is_bad[feed] = draw >= self._ends if self._is_bad[feed] else draw < self._begins
        return self._is_bad[feed]
