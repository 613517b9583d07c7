"""The values of keys of the changelog, as a shard's file has them: for writing again what void records have overwritten
(:mod:`gateway.cluster.fencing`)."""

import sqlite3
from typing import Any

import msgspec

from gateway.shard.messages import Message
from gateway.shard.spool_records import (
    MARKER_KEY,
    Marker,
    further_value,
    keyed_value,
    marker_value,
    message_value,
    number_in,
    part_value,
    row_value,
)
from schemas.envelope import Instruction
from schemas.errors import RecordError

_message_decoder = msgspec.msgpack.Decoder(Message)
_instructions_decoder = msgspec.msgpack.Decoder(list[Instruction])
_delivery_decoder = msgspec.msgpack.Decoder(tuple[int, bool, tuple[int, ...], bool])
_clients_decoder = msgspec.msgpack.Decoder(list[str])
_marker_decoder = msgspec.msgpack.Decoder(Marker)


class SpoolValues:
    """Reads the tables of `spool.sql`, whose named blocks are `sql`. Methods raise sqlite3.Error."""

    def __init__(self, db: sqlite3.Connection, sql: dict[str, str]) -> None:
        self._db = db
        self._sql = sql

    def find(self, key: bytes) -> bytes | None:
        """The value of a key; None if there is none, also of one that no writer uses."""
        kind, _, rest = key.partition(b"/")
        try:
            match kind:
                case b"m":
                    return self._message(number_in(key, rest))
                case b"r":
                    return self._row(number_in(key, rest))
                case b"k":
                    found = self._one("keyed_value", rest.decode())
                    return None if found is None else keyed_value(found)
                case b"f":
                    position, _, part = rest.partition(b"/")
                    found = self._one("part_value", number_in(key, position), number_in(key, part))
                    return None if found is None else part_value(_clients_decoder.decode(found[0]))
                case b"b" | b"s":
                    found = self._one("bundles_value" if kind == b"b" else "sources_value", rest)
                    return None if found is None else bytes(found[0])
                case _ if key == MARKER_KEY:
                    found = self._one("state")
                    return None if found is None or found[0] is None else marker_value(_marker_decoder.decode(found[0]))
        except (RecordError, UnicodeDecodeError):
            pass  # malformed
        return None

    def _message(self, number: int) -> bytes | None:
        found = self._one("message_value", number)
        if found is None:
            return None
        mid, message, instructions = found[0], _message_decoder.decode(found[1]), _instructions_decoder.decode(found[2])
        if mid == number:
            return message_value(message, instructions)
        return further_value(mid, message, instructions[0])

    def _row(self, row: int) -> bytes | None:
        found = self._one("row_value", row)
        if found is None:
            return None
        mid, session, entry = found
        return row_value((row, mid, session, *_delivery_decoder.decode(entry)))

    def _one(self, block: str, *parameters: Any) -> Any:
        return self._db.execute(self._sql[block], parameters).fetchone()
