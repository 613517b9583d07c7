"""What a shard has taken of the bundles that agents carry, so that its recipients get each once (M14). Pure.

Two gateways may take the same bundle, and each puts it on `ingress`. Both copies stand in the originator's partition
there, and a shard applies a partition in order, on both of its ways (:mod:`gateway.shard.delivery_order`). So it takes
the copy that stands first, and drops the later ones. For each *source*, which is an originator, an incarnation and a
recipient (the platform, or the agent of an envelope), it remembers which sequences it has taken.

*Recent* sequences are remembered with the offset at which each stands. That makes them facts that need no transaction
with the shard's positions: whatever is read again after a crash, or comes by the other way, stands at the same offset,
is the same copy, and is taken again. What is durable too early is therefore harmless. It must not be durable too late:
a checkpoint writes it with the positions. Once a checkpoint covers a sequence, no record at its offset comes any more,
but for the last one of a source: its copy may be still to come by the other way. So each but the last becomes a bit.

Nothing that was taken on `ingress` has to be dropped because memory is full, since its carriers have a receipt for it.
Memory is bounded otherwise:

* *Of a source*: a bundle says below which sequence nothing to its recipient is alive (`low_water`); what is below that
  is dropped, and is not remembered. A gateway takes no bundle whose sequence is as much as `BUNDLE_WINDOW` above its
  mark; and the source's mark is at least that of each bundle taken. So there are at most so many bits, 128 KiB.
* *Sources of the platform*, one for each incarnation of an originator: gateways take bundles of only so many
  (:mod:`gateway.mesh.incarnations`). Beyond `sources` the one unused for longest is forgotten, if that is longer than
  `remembered_s`: longer than any of its bundles can be alive. If none is, there are more than `sources`.
* *Sources of envelopes*: their recipients are agents, which have such a memory themselves (:mod:`bundles.seen`). So
  this one only spares them copies, and beyond `envelopes` the source unused for longest is forgotten.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Annotated, Final, NamedTuple

import msgspec

from gateway.shard.messages import Message
from gateway.shard.spool_versions import check_version, malformed
from schemas.envelope import BUNDLE_WINDOW
from schemas.errors import RecordError
from schemas.undecodable import UNDECODABLE

VERSION: Final = 1

Natural = Annotated[int, msgspec.Meta(ge=0)]


class Source(NamedTuple):
    """Of bundles whose sequences ascend and that share a low-water mark. `recipient`: the inbox of an envelope's agent;
    "": the platform."""

    originator: str
    incarnation: int
    recipient: str

    @property
    def key(self) -> bytes:
        """32 hexadecimal digits, the same for ever."""
        return hashlib.blake2b(_encode(self), digest_size=16).hexdigest().encode()


class TakenRecord(msgspec.Struct, frozen=True, array_like=True):
    """What was taken of a source, as the spool has it: bit n of `taken` (byte n // 8, from the lowest bit) is sequence
    `base` + n; `recent` are sequences and their offsets on `ingress`, in the order in which they were taken. `used_s`:
    when the last one was taken, seconds since the epoch."""

    version: int
    originator: str
    incarnation: Natural
    recipient: str
    used_s: Natural
    low_water: Natural
    base: Natural
    taken: Annotated[bytes, msgspec.Meta(max_length=BUNDLE_WINDOW // 8 + 2)]
    recent: list[tuple[Natural, Natural]]


class BundleLimits(NamedTuple):
    """Of one shard: sources for the platform, and of envelopes; and how long the former are remembered, seconds."""

    sources: int = 100_000
    envelopes: int = 100_000
    remembered_s: float = 60 * 86_400.0


class _Taken:
    """`last`: the sequence that was taken last; up to `covered_to`, an offset, the present commit covers them."""

    __slots__ = ("_base", "_bits", "covered_to", "last", "low_water", "recent", "used_s")

    def __init__(
        self,
        used_s: int,
        low_water: int = 1,
        base: int = 0,
        bits: bytes = b"",
        recent: Iterable[tuple[int, int]] = (),
    ) -> None:
        self.used_s, self.low_water, self._base, self._bits = used_s, low_water, base, bytearray(bits)
        self.recent = dict(recent)
        self.last = next(reversed(self.recent), 0)
        self.covered_to = -1

    def has(self, sequence: int) -> bool:
        """Whether it was taken, and is not recent any more; or is not alive."""
        if sequence < self.low_water:
            return True
        at, bit = divmod(sequence - self._base, 8)
        return at < len(self._bits) and bool(self._bits[at] >> bit & 1)

    def rise(self, low_water: int) -> None:
        """Nothing below that is alive."""
        self.low_water = low_water
        whole = (low_water - self._base) // 8
        del self._bits[:whole]
        self._base += 8 * whole

    def cover(self) -> None:
        """A checkpoint covers those up to `covered_to`."""
        over = [s for s, offset in self.recent.items() if offset <= self.covered_to and s != self.last]
        for sequence in over:
            del self.recent[sequence]
            if sequence >= self.low_water:
                self._set(sequence)

    def _set(self, sequence: int) -> None:
        at, bit = divmod(sequence - self._base, 8)
        if at >= len(self._bits):
            self._bits.extend(bytes(at + 1 - len(self._bits)))
        self._bits[at] |= 1 << bit

    def record(self, source: Source) -> TakenRecord:
        bits = bytes(self._bits)
        return TakenRecord(VERSION, *source, self.used_s, self.low_water, self._base, bits, [*self.recent.items()])


class TakenBundles:
    """The memory of one shard."""

    def __init__(self, limits: BundleLimits = BundleLimits()) -> None:  # noqa: B008 - immutable
        self._limits = limits
        self._platforms: OrderedDict[Source, _Taken] = OrderedDict()  # the one unused for longest first
        self._envelopes: OrderedDict[Source, _Taken] = OrderedDict()
        self._changed: dict[Source, None] = {}
        self._written: list[Source] = []

    def __len__(self) -> int:
        """How many sources it remembers."""
        return len(self._platforms) + len(self._envelopes)

    def stores(self) -> Iterator[tuple[str, int, float]]:
        """Of the platform's sources, originator, incarnation, and when the last bundle was taken, s since the epoch."""
        for source, taken in self._platforms.items():
            yield source.originator, source.incarnation, float(taken.used_s)

    def is_new(self, message: Message, now_s: float) -> bool:
        """Whether a message that came in a bundle is to be delivered, now or once more; it is remembered then."""
        mark = message.bundle
        if mark is None:
            raise ValueError(f"the message {message.id} did not come in a bundle")
        source = Source(message.source, mark.incarnation, message.topic if mark.is_envelope else "")
        sources = self._sources(source)
        taken = sources.get(source)
        if taken is None:
            taken = sources[source] = _Taken(int(now_s))
            self._bound(now_s)
        at = taken.recent.get(mark.sequence)
        if at is not None:
            return at == message.offset
        if taken.has(mark.sequence):
            return False
        if mark.low_water > taken.low_water:
            taken.rise(mark.low_water)
        taken.recent[mark.sequence] = message.offset
        taken.last, taken.used_s = mark.sequence, int(now_s)
        sources.move_to_end(source)
        self._changed[source] = None
        return True

    def _sources(self, source: Source) -> OrderedDict[Source, _Taken]:
        return self._envelopes if source.recipient else self._platforms

    def _bound(self, now_s: float) -> None:
        """Forgets what can be forgotten; at most two sources, so that nobody waits for long."""
        limits = self._limits
        for _ in range(2):
            if len(self._platforms) <= limits.sources:
                break
            source, taken = next(iter(self._platforms.items()))
            if taken.used_s + limits.remembered_s > now_s:
                break
            self._forget(source)
        if len(self._envelopes) > limits.envelopes:
            self._forget(next(iter(self._envelopes)))

    def _forget(self, source: Source) -> None:
        del self._sources(source)[source]
        self._changed[source] = None

    def take_changed(self) -> dict[bytes, bytes | None]:
        """What the next commit writes, by key, None for what is forgotten; `committed` follows if it succeeds."""
        written: dict[bytes, bytes | None] = {}
        for source in self._changed:
            taken = self._sources(source).get(source)
            if taken is not None:
                taken.covered_to = taken.recent.get(taken.last, -1)
            written[source.key] = _encode(taken.record(source)) if taken is not None else None
        self._written += self._changed
        self._changed = {}
        return written

    def committed(self) -> None:
        """The commit has succeeded, and the positions with it."""
        for source in self._written:
            taken = self._sources(source).get(source)
            if taken is not None:
                taken.cover()
        self._written = []

    def restore(self, values: Iterable[bytes]) -> None:
        """Takes up what the spool has."""
        for record in sorted(map(_decoder.decode, values), key=lambda record: record.used_s):
            source = Source(record.originator, record.incarnation, record.recipient)
            taken = _Taken(record.used_s, record.low_water, record.base, record.taken, record.recent)
            self._sources(source)[source] = taken


def checked(key: bytes, value: bytes) -> bytes:
    """The value of a record of the changelog. Raises RecordError if it is malformed."""
    try:
        record = _decoder.decode(value)
        low_water = record.low_water
        if record.base > low_water or any(s - low_water >= BUNDLE_WINDOW for s, _ in record.recent):
            raise RecordError("its sequences are too far from its low-water mark")
    except (*UNDECODABLE, RecordError) as error:
        raise malformed(key, value, VERSION, error) from error
    check_version(key, record.version, VERSION)
    return value


_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(TakenRecord)
