"""Fences on `retained`, which all gateways fold from the beginning (G6, Q7; :mod:`gateway.cluster.fencing`).

The records of all shards' clients share one partition. Each has the epoch of the home that wrote it. Who takes over
shards writes a fence for each of them, under a key of its own (`$cluster/fences/<shard>/<epoch>`), after those on
`ingress` and before it serves. A record of a lower epoch behind the fence of its sender's shard is **void**, at any
QoS: else an old value that comes late would take the place of a newer one. PUBACK and PUBREC of a retained message
wait until it is folded and counts, so nothing void was acknowledged.

**Mending.** Compaction keeps the last record of a topic, void or not. So the home of the void record's sender's shard
writes again what counts, or a tombstone. This record has one header more, `mend`: `shard;epoch;offset`, its writer's
shard and epoch, and the offset of the record that it mends. It counts only if that is still the last record of the
topic, or if compaction has removed all earlier ones. Otherwise somebody has published meanwhile, that is what counts,
and the mend itself has to be mended.

Copies of bundles have no epoch, and are never void: they are acknowledged once they are stored. A late one, which is
behind a newer bundle of its source, does not count either (:mod:`gateway.shard.retained_bundles`), and is mended in the
same way. A gateway that starts after compaction has removed the newer one, because somebody else has published since,
does not know that a copy is late.

A void record stays in the log for a while after its mend, and who reads it then needs the fence. So a fence is removed
only once it has a successor, nothing of its shard was void, mended or fenced for two days, and nothing is unmended:
compaction has removed by then what was overwritten before (`max.compaction.lag.ms`).
"""

from collections import OrderedDict
from typing import NamedTuple, TypeVar

import structlog

from gateway.record import Record
from schemas.cluster_topics import FENCES_TOPIC, decode_fences
from schemas.envelope import INGRESS_HEADERS, Meta
from schemas.errors import RecordError
from schemas.identity import shard_of
from schemas.topics import DAY_MS

MEND_HEADER = "mend"
_REMEMBERED = 10_000
"""How many void records are remembered for those that wait to hear of theirs; and ends of topics, for mends that come
behind them."""

_REMOVED_AFTER_MS = 2 * DAY_MS

K = TypeVar("K")
V = TypeVar("V")

log = structlog.get_logger(__name__)


def fence_key(shard: int, epoch: int) -> str:
    """The key of a fence on `retained`."""
    return f"{FENCES_TOPIC}/{shard}/{epoch}"


class Written(NamedTuple):
    """The shard and epoch of the home that has written a record, and the offset of what it mends, None if nothing."""

    shard: int
    epoch: int
    mends: int | None = None

    def encode(self) -> bytes:
        """The header of a mend."""
        return f"{self.shard};{self.epoch};{self.mends}".encode()

    @classmethod
    def decode(cls, raw: bytes) -> "Written":
        """Raises ValueError if it is malformed."""
        shard, epoch, offset = map(int, raw.split(b";"))
        return cls(shard, epoch, offset)


def is_mend(record: Record) -> bool:
    """Whether a record is a mend."""
    headers = record.headers() or []
    return len(headers) > len(INGRESS_HEADERS) and headers[-1][0] == MEND_HEADER


class Unmended(NamedTuple):
    """The last record of a topic is void, or a late copy: where it stands, and whose shard is to mend it."""

    offset: int
    shard: int


class RetainedFences:
    """The fold. Records come in the order of the topic."""

    def __init__(self, shards: int) -> None:
        self._shards = shards
        self._epochs: dict[int, int] = {}
        self._fences: set[tuple[int, int]] = set()
        self._unmended: dict[str, Unmended] = {}
        self._void: OrderedDict[int, None] = OrderedDict()
        self._ended: OrderedDict[str, int] = OrderedDict()
        self._busy_ms: dict[int, int] = {}

    def read_fence(self, record: Record) -> None:
        """A fence, or its tombstone. One that is malformed is passed over."""
        raw, key = record.value(), (record.key() or b"").decode(errors="replace")
        if raw is None:
            self._fences = {fence for fence in self._fences if fence_key(*fence) != key}
            return
        try:
            found = decode_fences(raw).epochs
        except RecordError as error:
            log.warning("cannot read a fence on retained", reason=str(error))
            return
        for shard, epoch in found:
            if key == fence_key(shard, epoch) and shard < self._shards:
                self._fences.add((shard, epoch))
                self._epochs[shard] = max(epoch, self._epochs.get(shard, 0))
                self._busy_ms[shard] = record.timestamp()[1]

    def counts(self, topic: str, record: Record, kept: int | None) -> bool:
        """Whether a record of a topic counts; `kept` is the offset of what is retained there."""
        unmended, of = self._unmended.pop(topic, None), _written_by(record, self._shards)
        last = kept if unmended is None else unmended.offset
        if last is None:
            last = self._ended.get(topic)
        is_void = of is not None and self._is_void(of, record, last)
        if of is not None and is_void:
            self._unmended[topic] = Unmended(record.offset(), of.shard)
            _remember(self._void, record.offset(), None)
        elif record.value():
            self._ended.pop(topic, None)
        else:
            self.ended(topic, record)
        return not is_void

    def overwritten(self, topic: str, record: Record, source: str) -> None:
        """A record that no fence makes void is a late copy of a bundle of `source`."""
        self._unmended[topic] = Unmended(record.offset(), shard_of(source, self._shards))

    def ended(self, topic: str, record: Record) -> None:
        """A record that counts has ended what was retained."""
        _remember(self._ended, topic, record.offset())

    def _is_void(self, of: Written, record: Record, last: int | None) -> bool:
        """`last`: where the topic's last record stands, void or not; None if compaction has removed it."""
        is_late = of.epoch < self._epochs.get(of.shard, 0)
        if is_late or of.mends is not None:
            self._busy_ms[of.shard] = record.timestamp()[1]
        return is_late or (of.mends is not None and last is not None and last != of.mends)

    def is_void(self, offset: int) -> bool:
        """Whether a record that was folded a moment ago does not count."""
        return offset in self._void

    def unmended(self, shard: int) -> dict[str, Unmended]:
        """By topic, what a shard is to mend."""
        return {topic: found for topic, found in self._unmended.items() if found.shard == shard}

    def removable(self, shard: int, now_ms: int) -> list[int]:
        """Epochs of fences that the owner of a shard may remove."""
        if now_ms < self._busy_ms.get(shard, now_ms) + _REMOVED_AFTER_MS or self.unmended(shard):
            return []
        return sorted(epoch for of, epoch in self._fences if of == shard and epoch < self._epochs[shard])


def _written_by(record: Record, shards: int) -> Written | None:
    """Which home has written a record; None if it does not say."""
    headers = record.headers() or []
    try:
        if is_mend(record):
            return Written.decode(headers[-1][1])
        epoch = Meta.decode(headers[2][1]).epoch
        return None if epoch is None else Written(shard_of(headers[1][1].decode(), shards), epoch)
    except (RecordError, IndexError, AttributeError, UnicodeDecodeError, ValueError):
        return None


def _remember(places: OrderedDict[K, V], key: K, value: V) -> None:
    places[key] = value
    if len(places) > _REMEMBERED:
        places.popitem(last=False)
