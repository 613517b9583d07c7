"""Messages whose sender gave them a key: told by their derived id when they are sent again (Q1).

Which ids are remembered is as durable as the acknowledgement they stand for. The spool holds those up to the last
checkpoint, in the same commit as the position on `ingress`; what lies behind that position is read from there at start.
"""

import hashlib
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from gateway.record import Record
from gateway.shard.shard_spool import ShardSpool
from schemas.envelope import Meta
from schemas.errors import RecordError
from schemas.identity import is_derived


class Keyed(NamedTuple):
    """What is known of a stored message: `print` tells its content from another's, `at_ms` when it was stored."""

    print: bytes
    at_ms: int


def fingerprint(topic: bytes, payload: bytes) -> bytes:
    """16 bytes that tell a message's destination and payload from others."""
    return hashlib.blake2b(payload, digest_size=16, key=hashlib.sha256(topic).digest()).digest()


class KeyedMessages:
    """The latest derived ids of one shard's clients that `ingress` holds: `most` of them, none older than `kept_s`."""

    def __init__(
        self, most: int, kept_s: float, spool: ShardSpool, clock: Callable[[], float], counts: Counter[str]
    ) -> None:
        self._most = most
        self._kept_ms = int(kept_s * 1000)
        self._spool = spool
        self._clock = clock
        self._counts = counts
        self._known: OrderedDict[str, Keyed] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def find(self, message_id: str) -> Keyed | None:
        """What is known of a message, if it is stored already."""
        found = self._known.get(message_id)
        return found if found is not None and found.at_ms >= self._oldest_ms() else None

    def stored(self, message_id: str, content: bytes) -> None:
        """Kafka has the message; `content` is its fingerprint."""
        self._put(message_id, Keyed(content, int(self._clock() * 1000)))

    def load(self, rows: list[tuple[str, bytes, int]]) -> None:
        """At start: takes what the spool has, oldest first, as (id, fingerprint, time)."""
        for message_id, content, at_ms in rows:
            self._known[message_id] = Keyed(content, at_ms)
        self._forget()

    def recover(self, record: Record) -> None:
        """At start: takes a record of `ingress` that no checkpoint covers, whatever it is."""
        (_, raw), *_ = record.headers() or [("", b"")]
        message_id = (raw or b"").decode(errors="replace")
        if is_derived(message_id) and message_id not in self._known and not _is_bundle(record):
            content = fingerprint(record.key() or b"", record.value() or b"")
            self._put(message_id, Keyed(content, record.timestamp()[1]))

    def _put(self, message_id: str, keyed: Keyed) -> None:
        self._known[message_id] = keyed
        self._known.move_to_end(message_id)
        self._spool.put_keyed(message_id, keyed)
        self._forget()

    def _forget(self) -> None:
        oldest_ms = self._oldest_ms()
        while self._known:
            message_id, keyed = next(iter(self._known.items()))
            if keyed.at_ms >= oldest_ms:
                if len(self._known) <= self._most:
                    return
                self._counts["idempotency_keys_full"] += 1
            del self._known[message_id]
            self._spool.put_keyed(message_id, None)

    def _oldest_ms(self) -> int:
        return int(self._clock() * 1000) - self._kept_ms


def _is_bundle(record: Record) -> bool:
    """Whether a message came in a bundle: its id is derived too, but nobody posts it with a key."""
    try:
        return Meta.decode((record.headers() or [])[2][1]).bundle is not None
    except (RecordError, IndexError, AttributeError):
        return False
