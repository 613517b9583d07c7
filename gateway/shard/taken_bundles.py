"""What a shard has taken of the bundles that agents carry, so that its recipients get each once (M14). Pure.

Two gateways may take the same bundle, and each puts it on `ingress`. Both copies stand in the originator's partition
there, and a shard applies a partition in order, on both of its ways (:mod:`gateway.shard.delivery_order`). So it takes
the copy that stands first, and drops the later ones. For each *source*, which is an originator, an incarnation and a
destination, it remembers the sequences it has taken, and at which offset each stands.

The offset makes an entry a fact that needs no transaction with the shard's positions: whatever is read again after a
crash, or comes by the other way, stands at the same offset, is the same copy, and is taken again. What is durable too
early is therefore harmless. It must not be durable too late: a checkpoint writes it with the positions.

Memory is bounded by the messages that are alive, and no clock is trusted. A bundle says below which sequence nothing to
its destination is alive (`low_water`); what is below that is dropped, and need not be remembered. But a crash before
the next checkpoint is over brings records again that were taken before the mark rose. So an entry is forgotten only
once a checkpoint covers it, and never the last one of a source: its copy may be still to come by the other way.

The number of sources, of those of one originator, and of sequences of one source is limited. Beyond a limit a bundle is
dropped, never delivered twice.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable
from typing import Annotated, Final, Literal, NamedTuple

import msgspec

from gateway.shard.messages import Message
from schemas.errors import RecordError

VERSION: Final = 1

Verdict = Literal["new", "duplicate", "full"]
Natural = Annotated[int, msgspec.Meta(ge=0)]


class Source(NamedTuple):
    """Of bundles whose sequences ascend and that share a low-water mark."""

    originator: str
    incarnation: int
    destination: str

    @property
    def key(self) -> bytes:
        """32 hexadecimal digits, the same for ever."""
        return hashlib.blake2b(_encode(self), digest_size=16).hexdigest().encode()


class TakenRecord(msgspec.Struct, frozen=True, array_like=True):
    """What was taken of a source, as the spool has it: sequences at or above `low_water` and their offsets on
    `ingress`, in the order in which they were taken."""

    version: int
    originator: str
    incarnation: Natural
    destination: str
    low_water: Natural
    taken: list[tuple[Natural, Natural]]


class BundleLimits(NamedTuple):
    """Of one shard: `sources`; `of_originator`, sources of one originator; `sequences` of one source."""

    sources: int = 100_000
    of_originator: int = 1_000
    sequences: int = 20_000


class _Taken:
    __slots__ = ("covered_to", "last", "low_water", "offsets")

    def __init__(self, low_water: int, offsets: dict[int, int]) -> None:
        self.low_water, self.offsets = low_water, offsets
        self.last = next(reversed(offsets), 0)
        self.covered_to = -1

    def alive(self) -> int:
        """How many entries are there for as long as their messages are alive; the others go with a checkpoint."""
        return sum(sequence >= self.low_water for sequence in self.offsets)


class TakenBundles:
    """The memory of one shard."""

    def __init__(self, limits: BundleLimits = BundleLimits()) -> None:  # noqa: B008 - immutable
        self._limits = limits
        self._sources: dict[Source, _Taken] = {}
        self._of_originator: Counter[str] = Counter()
        self._changed: dict[Source, None] = {}
        self._written: list[Source] = []

    def __len__(self) -> int:
        return len(self._sources)

    def judge(self, message: Message) -> Verdict:
        """Whether a message that came in a bundle is to be delivered, now or once more; it is remembered then."""
        mark = message.bundle
        if mark is None:
            raise ValueError(f"the message {message.id} did not come in a bundle")
        source = Source(message.source, mark.incarnation, message.topic)
        taken = self._sources.get(source)
        if taken is None:
            taken = self._add(source)
            if taken is None:
                return "full"
        at = taken.offsets.get(mark.sequence)
        if at is not None:
            return "new" if at == message.offset else "duplicate"
        if mark.sequence < taken.low_water:
            return "duplicate"
        if mark.low_water > taken.low_water:
            taken.low_water = mark.low_water
            self._changed[source] = None
        if len(taken.offsets) >= self._limits.sequences and taken.alive() >= self._limits.sequences:
            return "full"
        taken.offsets[mark.sequence] = message.offset
        taken.last = mark.sequence
        self._changed[source] = None
        return "new"

    def _add(self, source: Source) -> _Taken | None:
        limits, originator = self._limits, source.originator
        if len(self._sources) >= limits.sources or self._of_originator[originator] >= limits.of_originator:
            return None
        self._of_originator[originator] += 1
        taken = self._sources[source] = _Taken(1, {})
        return taken

    def take_changed(self) -> dict[bytes, bytes]:
        """What the next commit writes, by key; `committed` follows if it succeeds."""
        written = {}
        for source in self._changed:
            taken = self._sources[source]
            taken.covered_to = taken.offsets.get(taken.last, -1)
            entries = [*taken.offsets.items()]
            written[source.key] = _encode(TakenRecord(VERSION, *source, taken.low_water, entries))
        self._written += self._changed
        self._changed = {}
        return written

    def committed(self) -> None:
        """The commit has succeeded, and the positions with it: forgets what nobody needs."""
        for source in self._written:
            taken = self._sources[source]
            over = [
                sequence
                for sequence, offset in taken.offsets.items()
                if sequence < taken.low_water and offset <= taken.covered_to and sequence != taken.last
            ]
            for sequence in over:
                del taken.offsets[sequence]
        self._written = []

    def restore(self, values: Iterable[bytes]) -> None:
        """Takes up what the spool has."""
        for value in values:
            record = _decoder.decode(value)
            source = Source(record.originator, record.incarnation, record.destination)
            self._sources[source] = _Taken(record.low_water, dict(record.taken))
            self._of_originator[source.originator] += 1


def checked(key: bytes, value: bytes | None) -> bytes:
    """The value of a record of the changelog. Raises RecordError if it is malformed."""
    try:
        if value is None:
            raise RecordError("it has no value")
        record = _decoder.decode(value)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecordError) as error:
        raise RecordError(f"spool record {key[:80]!r} is malformed: {error}") from error
    if record.version != VERSION:
        raise RecordError(f"spool record {key[:80]!r} has the unknown version {record.version}")
    return value


_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(TakenRecord)
