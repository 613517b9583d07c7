"""What a shard knows of a source of a redundant feed, as its spool has it (S3). Pure.

The state of the merge must be that of the shard's positions, neither older nor newer: a newer one would drop as
duplicates what is still to be delivered. A commit is several records, and its writer may die between any two. So each
source has two *places* in the changelog, `<key>/0` and `<key>/1`, and is written to them in turn, with the number of
the commit. The shard's position (:mod:`gateway.shard.merged_feeds`) names the last number that counts: of the two
records of a source the one with the highest number up to that is its state, and the other one is from a commit that has
failed, or older. A home whose commit has failed half-way makes no other
(:class:`gateway.shard.checkpoint.Checkpointer`), which would overwrite the state that counts. Only sources that have
changed are written.

Messages that are held are not in it, but their positions on `egress`: a restart reads them again.
"""

import hashlib
from collections.abc import Iterable
from typing import Annotated, Final

import msgspec

from feeds.merge_state import StreamState
from gateway.shard.spool_versions import check_version, malformed
from schemas.errors import RecordError
from schemas.undecodable import UNDECODABLE

VERSION: Final = 1
Natural = Annotated[int, msgspec.Meta(ge=0)]


class HeldState(msgspec.Struct, frozen=True, array_like=True):
    """A copy that waits behind a gap: its number, who brought it, where it stands on `egress`, bytes of its payload."""

    stream: str
    sequence: Natural
    part: Natural
    slot: Annotated[int, msgspec.Meta(ge=0, le=1)]
    position: Natural
    size: Natural


class SourceState(msgspec.Struct, frozen=True, array_like=True):
    """A source `source` of the feed `name` at the commit `number`: the streams of its epochs without what is held;
    `held`; `asleep` are streams of which the shard has got nothing for a while (:class:`gateway.shard.feed_records.
    Decided`); `ended` is the last epoch that is over, None if none is."""

    version: int
    number: Natural
    name: str
    source: str
    ended: int | None
    asleep: list[str]
    streams: list[StreamState]
    held: list[HeldState]

    @property
    def key(self) -> tuple[str, str]:
        return self.name, self.source


class SourcePlaces:
    """Where the state of each source is written, and with which number."""

    def __init__(self) -> None:
        self._number = 0
        self._place: dict[tuple[str, str], int] = {}

    @property
    def number(self) -> int:
        """Of the last commit that had any."""
        return self._number

    def next_number(self) -> int:
        """Of a commit that has some."""
        self._number += 1
        return self._number

    def put(self, state: SourceState) -> tuple[bytes, bytes]:
        """Key and value to write the state: not to the place of the one before."""
        place = self._place[state.key] = 1 - self._place.get(state.key, 1)
        return _key_of(*state.key, place), _encode(state)

    def restore(
        self, stored: Iterable[tuple[bytes, bytes]], number: int
    ) -> tuple[list[SourceState], set[tuple[str, str]]]:
        """By what the spool has: the states that counted at the commit `number`; and the sources of which it has a
        later one, that nobody committed. These are to be written with the next commit: else it would commit that."""
        best: dict[tuple[str, str], SourceState] = {}
        later: dict[tuple[str, str], int] = {}
        highest = number
        for key, value in stored:
            state = _decoder.decode(value)
            highest = max(highest, state.number)
            if state.number > number:
                later[state.key] = int(key[-1:])
            elif state.key not in best or state.number > best[state.key].number:
                best[state.key] = state
                self._place[state.key] = int(key[-1:])
        self._place |= {source: 1 - place for source, place in later.items()}
        self._number = highest
        return [*best.values()], set(later)


def checked(key: bytes, value: bytes | None) -> bytes:
    """The value of a record of the changelog. Raises RecordError if it is malformed."""
    try:
        if value is None:
            raise RecordError("it has no value")
        if key[-2:] not in (b"/0", b"/1"):
            raise RecordError("its key names no place")
        state = _decoder.decode(value)
    except (*UNDECODABLE, RecordError) as error:
        raise malformed(key, value or b"", VERSION, error) from error
    check_version(key, state.version, VERSION)
    return value


def _key_of(name: str, source: str, place: int) -> bytes:
    digest = hashlib.blake2b(f"{name}/{source}".encode(), digest_size=16).hexdigest()
    return f"{digest}/{place}".encode()


_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(SourceState)
