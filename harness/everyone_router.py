"""A stand-in for the routers over a real Kafka, as a process: it sends each message to every shard (R2, R3, R8).

The real ones do that while they do not know the routes (scope `everyone`), so homes must be right with it. It starts in
a fraction of a second, where Spark takes many. A message to an inbox goes to its client's shard, as it does with the
real ones.

`python -m harness.everyone_router BOOTSTRAP PREFIX SHARDS PARTITIONS` begins at the beginning of `ingress`, and runs
until SIGTERM or SIGINT. It reads what has come by then, writes it, and waits for nothing in between. Of each partition
the order stays: one idempotent producer writes what one consumer reads.
"""

import signal
import sys
from collections.abc import Iterator
from typing import Any, Final, cast

from confluent_kafka import Consumer, Message, Producer, TopicPartition

from schemas.envelope import EVERYONE, INGRESS_HEADERS, ROUTED, Headers, Instruction
from schemas.identity import INBOX_MARK, shard_of
from schemas.topics import NO_GROUP, Topics

NAME: Final = b"active"
AT_ONCE: Final = 1_000
QUEUED: Final = 100_000
"""Instructions that wait for Kafka; the router reads on once there are fewer."""
FLUSH_S: Final = 5.0
_POLL_S: Final = 0.2


def instructions(
    destination: str, partition: int, offset: int, appended_ms: int, shards: int
) -> Iterator[tuple[int, bytes]]:
    """The shards that get an instruction for a message of `ingress`, each with the header `instr`."""
    if destination.startswith(INBOX_MARK):
        scope, to = ROUTED, [shard_of(destination[len(INBOX_MARK) :], shards)]
    else:
        scope, to = EVERYONE, list(range(shards))
    for number, shard in enumerate(to):
        limit = len(to) if number == len(to) - 1 else None
        yield shard, Instruction(partition, offset, number, limit, appended_ms, scope).encode()


class EveryoneRouter:
    """Copies `ingress` to `egress` until `stop`."""

    def __init__(self, bootstrap: str, topics: Topics, shards: int, partitions: int) -> None:
        self._shards, self._egress, self._is_stopped = shards, topics.egress, False
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": NO_GROUP,
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 100,
                "fetch.queue.backoff.ms": 5,
                "log_level": 2,
            }
        )
        self._consumer.assign([TopicPartition(topics.ingress, partition, 0) for partition in range(partitions)])
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 0.5,
                "queue.buffering.max.messages": 2 * QUEUED,
                "log_level": 2,
            }
        )

    def stop(self) -> None:
        self._is_stopped = True

    def run(self) -> None:
        """Raises RuntimeError if `ingress` cannot be read."""
        while not self._is_stopped:
            first = self._consumer.poll(_POLL_S)
            if first is not None:
                for message in (first, *self._consumer.consume(AT_ONCE, 0)):
                    self._send(message)
            self._producer.poll(0)
            while len(self._producer) > QUEUED:
                self._producer.poll(_POLL_S)
        self._producer.flush(FLUSH_S)
        self._consumer.close()

    def _send(self, message: Message) -> None:
        if (error := message.error()) is not None:
            raise RuntimeError(f"cannot read ingress: {error.str()}")
        headers, key = cast(Headers, message.headers() or []), message.key()
        if key is None or tuple(name for name, _ in headers) != INGRESS_HEADERS:
            return  # the real routers leave it out, too
        position = (message.partition() or 0, message.offset() or 0, message.timestamp()[1])
        for shard, instruction in instructions(key.decode(errors="replace"), *position, self._shards):
            whole: Any = [*headers, ("instr", instruction), ("router", NAME)]
            self._producer.produce(self._egress, message.value(), key, shard, headers=whole)


def main() -> int:
    bootstrap, prefix, shards, partitions = sys.argv[1:]
    router = EveryoneRouter(bootstrap, Topics(prefix), int(shards), int(partitions))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: router.stop())
    router.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
