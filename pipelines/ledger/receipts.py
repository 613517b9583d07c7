"""Receipts: what is known of messages whose senders ask for one, and when a receipt is due (Q13; `schemas.receipts`).

Events of one message may come in any order and more than once: that a receipt is asked for, recipients' outcomes, that
instructions are finished, that a client has read it. So a state is a set union and a sum of what was not there before,
and the receipt is due when the state says so, whatever came last. It is told once: later events change nothing.

A recipient that is reported again, after a crash of its gateway, counts once: the hash of its client id is remembered,
of the first MOST_SEEN recipients of a message. Beyond that number a crash can make the counts too high. Anybody may say
that it has read a message; it counts for those of whom it is known that they have got it.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
from pyspark.sql import Column
from pyspark.sql import functions as F

from schemas.receipts import HAS_IT, ReceiptRequest

ENDS: Final = ("relinquish", "untouched")
"""The kinds of events that finish an instruction, or say that there is none."""

MOST_SEEN: Final = 1_000
_HASH_BYTES: Final = 8


def awaited(event: Column) -> Column:
    """What an event on `progress` says for a receipt: its `kind`, the `receipt` asked for, `deliveries`, of each the
    client and the outcome, and `read_by`. Null if no receipt waits for it."""
    deliveries = F.arrays_zip(event["deliveries"]["client"].alias("client"), event["deliveries"]["outcome"])
    of_event = event["kind"], event["receipt"], deliveries.alias("deliveries"), event["read_by"]
    return F.when(event["is_awaited"], F.struct(*of_event))


class ReceiptState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is known of one message. `outcomes`: how many recipients had each; `seen`: hashes of the first of them that
    have got it; `readers`: of the first clients that say they have read it; `others`: of the first recipients with
    other outcomes; `is_over`: its receipt is told, or never will be due."""

    request: ReceiptRequest | None = None
    outcomes: dict[str, int] = {}
    seen: bytes = b""
    others: bytes = b""
    readers: bytes = b""
    is_complete: bool = False
    is_over: bool = False

    @classmethod
    def decode(cls, raw: bytes | None) -> "ReceiptState":
        """That of a message of which nothing is known, for None."""
        return cls() if raw is None else _decoder.decode(raw)

    def encode(self) -> bytes:
        return _encoder.encode(self)

    def after(self, events: Iterable[Mapping[str, Any]], *, is_complete: bool) -> "ReceiptState":
        """With what :func:`awaited` says of more events, and whether the message is complete by now."""
        if self.is_over:
            return self
        request, outcomes = self.request, Counter(self.outcomes)
        seen, others, readers = _hashes(self.seen), _hashes(self.others), _hashes(self.readers)
        for event in events:
            if event["read_by"] is not None and len(readers) < MOST_SEEN:
                readers[_hash(event["read_by"])] = None
            if event["receipt"] is not None:
                request = request or msgspec.convert(event["receipt"], ReceiptRequest)
            for delivery in event["deliveries"] or ():
                of = _hash(delivery["client"])
                if of not in seen and of not in others:
                    outcomes[delivery["outcome"]] += 1
                    if len(seen) + len(others) < MOST_SEEN:
                        (seen if delivery["outcome"] in HAS_IT else others)[of] = None
        return ReceiptState(
            request=request,
            outcomes=dict(outcomes),
            seen=b"".join(seen),
            others=b"".join(others),
            readers=b"".join(readers),
            is_complete=self.is_complete or is_complete,
        )

    @property
    def is_due(self) -> bool:
        """Whether the receipt is to be told now."""
        if self.request is None or self.is_over:
            return False
        match self.request.kind:
            case "delivered":
                return self.has_recipient or self.is_complete
            case "completed":
                return self.is_complete
            case "failed":
                return self.is_complete and not self.has_recipient
            case "read":
                return self.has_reader or (self.is_complete and not self.has_recipient)

    @property
    def has_recipient(self) -> bool:
        """Whether a recipient has the message."""
        return any(self.outcomes.get(outcome) for outcome in HAS_IT)

    @property
    def has_reader(self) -> bool:
        """Whether a recipient has read the message."""
        return self.read_by > 0

    @property
    def read_by(self) -> int:
        """How many recipients have read it."""
        return len(_hashes(self.seen).keys() & _hashes(self.readers).keys())

    def settled(self) -> "ReceiptState":
        """What is to be remembered, once what is due is told."""
        is_last = self.request is not None and self.request.kind != "read" and self.is_complete
        return ReceiptState(is_over=True) if self.is_due or self.is_over or is_last else self


def _hash(client: str) -> bytes:
    return hashlib.blake2b(client.encode(), digest_size=_HASH_BYTES).digest()


def _hashes(joined: bytes) -> dict[bytes, None]:
    """In order."""
    return dict.fromkeys(joined[at : at + _HASH_BYTES] for at in range(0, len(joined), _HASH_BYTES))


_decoder = msgspec.msgpack.Decoder(ReceiptState)
_encoder = msgspec.msgpack.Encoder()
