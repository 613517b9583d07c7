"""Where things belong: the platform's one hash, shards, partitions, inboxes and route keys (architecture: "Routing").

The functions of identifiers, topics and filters are pure and agree with their Spark counterparts in
:mod:`pipelines.routing.instructions`; a test checks this. :func:`derived_message_id` is pure too.
:func:`new_message_id` is not: it reads the clock and draws random digits, some in advance.
"""

import hashlib
import os
import time
import zlib
from uuid import UUID

CATCH_ALL = "#"
"""Route key that every topic looks up. No topic can have this name, so nothing collides with it."""

INBOX_MARK = "@"
"""First character of a destination that is a client's inbox: `@client-id`."""

MESSAGE_NAMESPACE = UUID("f480ea60-b61e-4ee2-8da8-5f1899d67af6")
"""The namespace of derived message ids (RFC 9562, 6.5). It must never change, or the same message would get another
id."""

ROUTE_DEPTH = 2
"""How many leading topic levels a route key keeps."""


def hash_of(identifier: str) -> int:
    """CRC-32 of the UTF-8 identifier, 0 … 2**32-1; equals `zlib.crc32` and Spark's `crc32`."""
    return zlib.crc32(identifier.encode())


def shard_of(client_id: str, shards: int) -> int:
    """The shard, 0 … shards-1, that hosts the session of `client_id`."""
    return hash_of(client_id) % shards


def partition_of(identifier: str, partitions: int) -> int:
    """The partition, 0 … partitions-1, of a topic that is partitioned by `identifier`."""
    return hash_of(identifier) % partitions


def inbox_of(client_id: str) -> str:
    """The destination that addresses one client."""
    return INBOX_MARK + client_id


def route_key(topic_filter: str, depth: int = ROUTE_DEPTH) -> str:
    """The coarse key under which a topic filter is routed: its leading levels, `depth` at most, before any wildcard.

    `a/b/#` and `a/b/c` give `a/b`, `a/+/c` and `a/#` give `a`, `+/b` and `#` give the catch-all key.
    """
    kept: list[str] = []
    for level in topic_filter.split("/")[:depth]:
        if level in ("+", "#"):
            break
        kept.append(level)
    return "/".join(kept) if kept else CATCH_ALL


def candidate_keys(topic: str, depth: int = ROUTE_DEPTH) -> list[str]:
    """Every route key that a filter matching `topic` can have, longest first, the catch-all last."""
    levels = topic.split("/")
    return ["/".join(levels[:n]) for n in range(min(depth, len(levels)), 0, -1)] + [CATCH_ALL]


_IDS_AT_ONCE = 256
_VARIANT = {digit: "89ab"[number % 4] for number, digit in enumerate("0123456789abcdef")}
_random_ends: list[str] = []
"""What follows the version in an id: 74 random bits each, used once. Asking the system for them costs more than all the
rest."""
_moment = (0, "")
"""A millisecond, and how its ids begin: there are many of each."""


def _more_random_ends() -> str:
    digits = os.urandom(10 * _IDS_AT_ONCE).hex()
    starts = range(0, 20 * _IDS_AT_ONCE, 20)
    fresh = [
        f"{digits[n + 1 : n + 4]}-{_VARIANT[digits[n]]}{digits[n + 4 : n + 7]}-{digits[n + 7 : n + 19]}" for n in starts
    ]
    _random_ends.extend(fresh[1:])
    return fresh[0]


def _forget_random_ends() -> None:
    _random_ends.clear()


os.register_at_fork(after_in_child=_forget_random_ends)  # otherwise parent and child would give the same ids


def new_message_id() -> str:
    """A UUID version 7 (RFC 9562, 5.7) in canonical text: unique, and ordered by time to the millisecond."""
    global _moment
    end = _random_ends.pop() if _random_ends else _more_random_ends()
    now_ms, moment = time.time_ns() // 1_000_000, _moment
    if moment[0] != now_ms:
        digits = f"{now_ms:012x}"
        moment = _moment = now_ms, f"{digits[:8]}-{digits[8:]}-7"
    return moment[1] + end


def derived_message_id(session: str, sequence: int | str) -> str:
    """A UUID version 8 from a name (RFC 9562, 5.8 and B.2: SHA-256 of namespace and name), in canonical text.

    The same session and sequence give the same id, now and in every later release; others give other ids, and none
    equals one of :func:`new_message_id`. The number 1 and the text "1" are two sequences. For senders that may write a
    message twice, so that copies are recognised by id. `sequence` must identify one message of the session forever; a
    number that is reused, such as an MQTT packet identifier, is not suitable.
    """
    kind, text = ("n", str(sequence)) if isinstance(sequence, int) else ("t", sequence)
    owner = session.encode()
    name = b"%d:%b%b" % (len(owner), owner, f"{kind}{text}".encode())  # the length keeps ("a", "b") from ("ab", "")
    value = int.from_bytes(hashlib.sha256(MESSAGE_NAMESPACE.bytes + name).digest()[:16])
    value = value & ~(0xF << 76) | 0x8 << 76
    value = value & ~(0b11 << 62) | 0b10 << 62
    return str(UUID(int=value))


def is_derived(message_id: str) -> bool:
    """Whether an id is one of :func:`derived_message_id`, by the version of its UUID; False for any other text."""
    return message_id[14:15] == "8"


def message_id_of(originator: str, incarnation: int, sequence: int) -> str:
    """The id of an originator's message, the same on every way. `incarnation` names the originator's store, and has a
    fixed width, so that no two originators share an id."""
    return derived_message_id(f"{originator}/{incarnation:016x}", sequence)
