"""A commit of a shard's spool as records of the changelog, and back. Pure.

The changelog is the topic `spool`: one partition a shard, compacted. A gateway's file is a view of it
(:mod:`gateway.shard.spool`). Only the last value of each key counts, so compaction never changes the meaning.

| key                   | value: msgpack with a version                                     | no value (tombstone)     |
|-----------------------|-------------------------------------------------------------------|--------------------------|
| `m/<number>`          | a message and its instructions, or a further instruction for the  | all instructions are     |
|                       | message `mid`, which is older than `number`                       | relinquished             |
| `r/<row>`             | a row: one recipient of the message `mid`                         | delivered, or given up   |
| `k/<message id>`      | a keyed message: fingerprint and time                             | forgotten                |
| `f/<position>/<part>` | clients finished with the message at this position of `egress`    | nobody needs to know     |
| `b/<key>`             | a source of bundles, and what was taken of it                     | forgotten                |
| `s/<key>/<place>`     | a source of redundant feeds, and what is merged of it             | it was void: see below   |
| `c`                   | :class:`Marker`: what is committed, and all positions             | never                    |
| `fence/<epoch>`       | a fence: :mod:`schemas.fences`                                    | no longer needed         |

A commit is several records, and its writer may die between any two of them. Therefore its last record is the marker.

* A row counts only if its number is at most `last_row` of the last marker, a message or further instruction only if its
  number is at most `last_mid`. Without a marker none counts. What the positions of the last marker do not cover comes
  again from `egress` and `ingress`, and with it what the dead writer had not committed.
* Tombstones, keyed messages, finished clients and bundles are facts. They count without a marker.
* The state of a source counts if its number is at most that which the positions of the last marker name
  (:mod:`gateway.shard.feed_states`).
* Numbers are used once. The next writer's are above any that it has seen, committed or not. Its first marker would
  commit what a dead writer has not, so it writes tombstones for that before
  (:meth:`gateway.shard.spool.Spool.catch_up_end`).
* A commit tried again writes its records again, with the same keys.
* What a later release has written is never left out (:class:`schemas.errors.NewerVersion`): a record of a known kind
  with a higher version, or one of an unknown kind that says its version.
* Where gateways share shards, records of a lower epoch behind a fence are void (:mod:`gateway.cluster.fencing`). The
  owner writes again what they have overwritten, as its file has it, or a tombstone if that has nothing.
"""

import re
from collections.abc import Callable, Iterable
from typing import Annotated, Protocol, TypeVar

import msgspec

from gateway.shard import feed_states
from gateway.shard.messages import Message
from gateway.shard.spool_batch import FurtherInstruction, NumberedMessage, Part, Row, SpoolBatch
from gateway.shard.spool_versions import about, check_version, malformed, version_in
from gateway.shard.taken_bundles import checked
from schemas.envelope import Instruction
from schemas.errors import NewerVersion, RecordError
from schemas.undecodable import UNDECODABLE

MARKER_KEY = b"c"
VERSION = 1

_HIGHEST = 2**63 - 1
"""SQLite's integers have 64 bits."""
_BUNDLES = b"b/"
_SOURCES = b"s/"
_NUMBER = re.compile(rb"0|[1-9][0-9]{0,18}")

Number = Annotated[int, msgspec.Meta(ge=0, le=_HIGHEST)]
TimeMs = Annotated[int, msgspec.Meta(ge=-_HIGHEST, le=_HIGHEST)]
Qos = Annotated[int, msgspec.Meta(ge=0, le=2)]

Record = tuple[bytes, bytes | None]


class _Versioned(Protocol):
    @property
    def version(self) -> int: ...


V = TypeVar("V", bound=_Versioned)


class Marker(msgspec.Struct, frozen=True):
    """Ends a commit. `last_row` and `last_mid` are the highest row and message numbers that are committed; `positions`
    are all positions by name, and `epoch` is the writer's, 0 until shards have owners that change."""

    last_row: Number
    last_mid: Number
    positions: dict[str, bytes]
    epoch: Number = 0
    version: int = VERSION


class _MessageValue(msgspec.Struct, frozen=True, array_like=True, tag="message"):
    version: int
    message: Message
    instructions: list[Instruction]


class _FurtherValue(msgspec.Struct, frozen=True, array_like=True, tag="instruction"):
    version: int
    mid: Number
    message: Message
    instruction: Instruction


class _RowValue(msgspec.Struct, frozen=True, array_like=True):
    version: int
    mid: Number
    session: str
    qos: Qos
    retain: bool
    subscription_ids: tuple[int, ...]
    may_be_sent: bool


class _KeyedValue(msgspec.Struct, frozen=True, array_like=True):
    version: int
    print: bytes
    at_ms: TimeMs


class _PartValue(msgspec.Struct, frozen=True, array_like=True):
    version: int
    clients: list[str]


_encode = msgspec.msgpack.Encoder().encode
_messages: msgspec.msgpack.Decoder[_MessageValue | _FurtherValue] = msgspec.msgpack.Decoder(
    _MessageValue | _FurtherValue
)
_rows = msgspec.msgpack.Decoder(_RowValue)
_keyed = msgspec.msgpack.Decoder(_KeyedValue)
_parts = msgspec.msgpack.Decoder(_PartValue)
_markers = msgspec.msgpack.Decoder(Marker)


def message_key(number: int) -> bytes:
    return b"m/%d" % number


def row_key(row: int) -> bytes:
    return b"r/%d" % row


def records_of(batch: SpoolBatch, marker: Marker) -> list[Record]:
    """The records (key, value) of one commit, in the order in which they are written."""
    records: list[Record] = []
    for mid, message, instructions in batch.messages:
        records.append((message_key(mid), message_value(message, instructions)))
    for row in batch.rows:
        records.append((row_key(row[0]), row_value(row)))
    for number, mid, message, instruction in batch.instructions:
        records.append((message_key(number), further_value(mid, message, instruction)))
    tombstones = [*map(row_key, batch.deleted_rows), *map(message_key, batch.forgotten)]
    for part, clients in batch.parts().items():
        if clients:
            records.append((_part_key(part), part_value(clients)))
        else:
            tombstones.append(_part_key(part))
    for message_id, keyed in batch.keyed.items():
        if keyed is not None:
            records.append((_keyed_key(message_id), keyed_value(keyed)))
        else:
            tombstones.append(_keyed_key(message_id))
    records += [(_BUNDLES + key, value) for key, value in batch.bundles.items()]
    records += [(_SOURCES + key, value) for key, value in batch.sources.items()]
    records += [(key, None) for key in dict.fromkeys(tombstones)]
    records.append((MARKER_KEY, marker_value(marker)))
    return records


def message_value(message: Message, instructions: list[Instruction]) -> bytes:
    return _encode(_MessageValue(VERSION, message, instructions))


def further_value(mid: int, message: Message, instruction: Instruction) -> bytes:
    return _encode(_FurtherValue(VERSION, mid, message, instruction))


def row_value(row: Row) -> bytes:
    return _encode(_RowValue(VERSION, *row[1:]))


def part_value(clients: list[str]) -> bytes:
    return _encode(_PartValue(VERSION, clients))


def keyed_value(keyed: tuple[bytes, int]) -> bytes:
    return _encode(_KeyedValue(VERSION, *keyed))


def marker_value(marker: Marker) -> bytes:
    return _encode(marker)


def batch_of(
    records: Iterable[Record], on_error: Callable[[int, RecordError], None] | None = None
) -> tuple[SpoolBatch, Marker | None]:
    """What a chunk of the changelog changes, wherever it is cut, and the last marker in it, None if it has none.

    Raises RecordError for a malformed record. With `on_error`, that is called instead with the index of the record and
    the error, and the record is left out. Raises NewerVersion in any case, if such a record is the last of its key.
    """
    fold, newer = _Fold(), dict[bytes, NewerVersion]()
    for index, (key, value) in enumerate(records):
        try:
            fold.apply(key, value)
        except NewerVersion as error:
            newer[key] = error
        except RecordError as error:
            newer.pop(key, None)
            if on_error is None:
                raise
            on_error(index, error)
        else:
            if newer:
                newer.pop(key, None)
    if newer:
        raise next(iter(newer.values()))
    return fold.batch(), fold.marker


class _Fold:
    """The last value of each key, or its tombstone."""

    def __init__(self) -> None:
        self.marker: Marker | None = None
        self._messages: dict[int, NumberedMessage] = {}
        self._instructions: dict[int, FurtherInstruction] = {}
        self._rows: dict[int, Row] = {}
        self._deleted_rows: dict[int, None] = {}
        self._forgotten: dict[int, None] = {}
        self._keyed: dict[str, tuple[bytes, int] | None] = {}
        self._bundles: dict[bytes, bytes | None] = {}
        self._sources: dict[bytes, bytes | None] = {}
        self._parts: dict[Part, list[str]] = {}

    def apply(self, key: bytes, value: bytes | None) -> None:
        """Raises RecordError, and has then changed nothing."""
        kind, _, rest = key.partition(b"/")
        match kind:
            case b"m":
                self._apply_message(key, number_in(key, rest), value)
            case b"r":
                self._apply_row(key, number_in(key, rest), value)
            case b"k":
                self._apply_keyed(key, rest, value)
            case b"b":
                self._bundles[rest] = checked(key, value) if value is not None else None
            case b"s":
                self._sources[rest] = feed_states.checked(key, value) if value is not None else None
            case b"f":
                position, _, part = rest.partition(b"/")
                place = number_in(key, position), number_in(key, part)
                self._parts[place] = _decoded(_parts, key, value).clients if value is not None else []
            case _ if key == MARKER_KEY:
                self.marker = _decoded(_markers, key, value)
            case _:
                if value is not None and version_in(value) > 0:
                    raise NewerVersion(about(key, "is of an unknown kind"))
                raise _error(key, "is of an unknown kind")

    def _apply_message(self, key: bytes, number: int, value: bytes | None) -> None:
        found = _decoded(_messages, key, value) if value is not None else None
        if found is not None and not _is_time(found.message.expires):
            raise _error(key, "is malformed: `expires` is out of range")
        if isinstance(found, _FurtherValue) and found.mid >= number:
            raise _error(key, f"is malformed: the message {found.mid} is not older than this instruction for it")
        for earlier in (self._messages, self._instructions, self._forgotten):
            earlier.pop(number, None)
        if found is None:
            self._forgotten[number] = None
        elif isinstance(found, _FurtherValue):
            self._instructions[number] = (number, found.mid, found.message, found.instruction)
        else:
            self._messages[number] = (number, found.message, found.instructions)

    def _apply_row(self, key: bytes, row: int, value: bytes | None) -> None:
        if value is None:
            self._rows.pop(row, None)
            self._deleted_rows[row] = None
            return
        f = _decoded(_rows, key, value)
        self._deleted_rows.pop(row, None)
        self._rows[row] = (row, f.mid, f.session, f.qos, f.retain, f.subscription_ids, f.may_be_sent)

    def _apply_keyed(self, key: bytes, raw_id: bytes, value: bytes | None) -> None:
        try:
            message_id = raw_id.decode()
        except UnicodeDecodeError as error:
            raise _error(key, "has a message id that is not UTF-8") from error
        found = _decoded(_keyed, key, value) if value is not None else None
        self._keyed[message_id] = None if found is None else (found.print, found.at_ms)

    def batch(self) -> SpoolBatch:
        return SpoolBatch(
            messages=[*self._messages.values()],
            rows=[*self._rows.values()],
            instructions=[*self._instructions.values()],
            deleted_rows=[*self._deleted_rows],
            forgotten=[*self._forgotten],
            keyed=self._keyed,
            bundles=self._bundles,
            sources=self._sources,
            finished_clients=self._parts,
        )


def _part_key(part: Part) -> bytes:
    return b"f/%d/%d" % part


def _keyed_key(message_id: str) -> bytes:
    return b"k/" + message_id.encode()


def number_in(key: bytes, raw: bytes) -> int:
    """The number `raw` in a key. Raises RecordError."""
    number = int(raw) if _NUMBER.fullmatch(raw) else -1
    if not 0 <= number <= _HIGHEST:
        raise _error(key, "has no valid number")
    return number


def _is_time(at_ms: int | None) -> bool:
    return at_ms is None or -_HIGHEST <= at_ms <= _HIGHEST


def _decoded(decoder: msgspec.msgpack.Decoder[V], key: bytes, value: bytes | None) -> V:
    if value is None:
        raise _error(key, "has no value")
    try:
        found = decoder.decode(value)
    except UNDECODABLE as error:
        raise malformed(key, value, VERSION, error) from error
    check_version(key, found.version, VERSION)
    return found


def _error(key: bytes, problem: str) -> RecordError:
    return RecordError(about(key, problem))
