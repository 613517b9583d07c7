"""Two adapters of a source as a process: `python -m bench.feed_load BOOTSTRAP PREFIX FEEDS GAPS`.

It reads a line a command: `die N`, `live N` (N is a feed), `stop`. At the end it prints a line of JSON: how many
messages were sent, and which numbers no feed has. It is a process of its own, because a producer takes processor time
from the reader.
"""

import json
import queue
import sys
import threading
import time

from confluent_kafka import Producer

from feeds.message import Feed, FeedMessage, encode, partition_of, stream_id, topic_of
from feeds.pairing import FeedSource, SourceFormat
from feeds.registry_records import SLOTS, AdapterBeat, RegistryKey
from schemas.events import encode as encode_event
from schemas.topics import Topics

NAME, PARTITIONS = "bench", 2
STREAM = stream_id("bench", 0)
RATE = 1_000
PAYLOAD, LAST = bytes(256), b"last"
BEAT_S = 0.2
GAP = 5
GAP_EVERY = 250
"""Messages from the beginning of a gap to that of the next one."""
FLUSH_S = 60.0
SOURCE = FeedSource(format=SourceFormat.MODE_S, name="bench", sequencer="bench")


class FeedLoad:
    """`RATE` messages a second on the first `feeds` slots; `read_us` is when a message was sent. With `gaps` the active
    feed lacks a few numbers now and then. An adapter that is not alive is silent, and has nothing of what was sent
    meanwhile."""

    def __init__(self, bootstrap: str, prefix: str, feeds: int, gaps: bool) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 1, "acks": "all", "log_level": 2})
        self._topic, self._registry = topic_of(prefix, NAME), Topics(prefix).feeds
        self._gaps = gaps
        self._alive = dict.fromkeys(list(Feed)[:feeds], True)
        self._missing: list[int] = []
        self._sent = self._beats = 0

    def run(self, commands: "queue.SimpleQueue[str]") -> tuple[int, list[int]]:
        """Until it is told to stop; how many were sent, and the numbers that no feed has. The last is on all feeds."""
        began = time.perf_counter()
        while True:
            while not commands.empty():
                word, _, feed = commands.get().partition(" ")
                if word == "stop":
                    self._write(is_last=True)
                    self._producer.flush(FLUSH_S)
                    return self._sent, self._missing
                self._alive[Feed(int(feed))] = word == "live"
                self._beat()
            if time.perf_counter() - began >= self._beats * BEAT_S:
                self._beat()
            self._write(is_last=False)
            pause = began + self._sent / RATE - time.perf_counter()
            if pause > 0:
                time.sleep(pause)

    def _write(self, *, is_last: bool) -> None:
        number, has_copy = self._sent, False
        payload = LAST if is_last else PAYLOAD
        for feed, is_alive in self._alive.items():
            if is_last or (is_alive and not self._is_skipped(feed, number)):
                message = FeedMessage(STREAM, number, 0, number, time.time_ns() // 1000, f"a{int(feed)}", payload)
                key, headers, value = encode(message)
                partition = partition_of(feed, STREAM, PARTITIONS)
                self._producer.produce(self._topic, value, key, partition, headers=headers)  # type: ignore[arg-type]
                has_copy = True
        self._producer.poll(0)
        if not has_copy:
            self._missing.append(number)
        self._sent += 1

    def _is_skipped(self, feed: Feed, number: int) -> bool:
        return self._gaps and feed is Feed.ACTIVE and number >= RATE and number % GAP_EVERY < GAP

    def _beat(self) -> None:
        self._beats += 1
        for feed, is_alive in self._alive.items():
            if is_alive:
                beat = AdapterBeat(
                    boot=1,
                    seq=self._beats,
                    slot=SLOTS[feed],
                    state="up",
                    at_us=0,
                    machine=f"m{int(feed)}",
                    source=SOURCE,
                )
                key = RegistryKey("adapter", NAME, f"a{int(feed)}").encode()
                self._producer.produce(self._registry, encode_event(beat), key)


def main() -> None:
    bootstrap, prefix, feeds, gaps = sys.argv[1:]
    commands: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=lambda: [commands.put(line.strip()) for line in sys.stdin], daemon=True).start()
    sent, missing = FeedLoad(bootstrap, prefix, int(feeds), gaps == "gaps").run(commands)
    print(json.dumps({"sent": sent, "missing": missing}), flush=True)


if __name__ == "__main__":
    main()
