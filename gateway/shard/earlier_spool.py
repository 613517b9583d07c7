"""The spool of earlier versions: one SQLite file for all shards, which was itself the truth. It is taken up once.

The caller writes what `read_earlier` returns to the changelog of each shard, and then calls `retire`. If it dies before
that, it takes the file up again: reading does not change it.
"""

import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

import msgspec

from gateway.errors import SpoolError
from gateway.shard.messages import Message
from gateway.shard.spool import REMEDY, check
from gateway.shard.spool_batch import SpoolBatch
from schemas.envelope import Instruction
from schemas.sql import named_blocks

SHARD = "shard"
"""The name of a shard's position on `egress`; it was `shard/<n>`."""

_TAKEN_UP = ".taken-up"

_message_decoder = msgspec.msgpack.Decoder(Message)
_entry_decoder = msgspec.msgpack.Decoder(tuple[int, bool, tuple[int, ...], bool])
_instructions_decoder = msgspec.msgpack.Decoder(list[Instruction])


@dataclass
class EarlierShard:
    """What the file has for one shard. A message without rows was finished, and is not relinquished yet. Ids of keyed
    messages and the positions that were the gateway's go to every shard. `last_row` and `last_mid` are the highest of
    the whole file: session logs name rows of it."""

    shard: int
    last_row: int
    last_mid: int
    batch: SpoolBatch = field(default_factory=SpoolBatch)
    positions: dict[str, bytes] = field(default_factory=dict)


def read_earlier(path: Path, shards: int) -> list[EarlierShard] | None:
    """All of the file, by shard; None if there is none. Raises SpoolError if it cannot be read, is damaged, is in use
    by another process, or has something for a shard that does not exist."""
    if not path.exists():
        return None
    sql = named_blocks(files("gateway.shard").joinpath("earlier_spool.sql").read_text())
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, isolation_level=None)) as db:
            check(db)
            if db.execute(sql["tables"]).fetchone() == (0,):  # its creator has died at once
                return [EarlierShard(shard, 0, 0) for shard in range(shards)]
            return _read(db, sql, shards)
    except (sqlite3.Error, OSError, ValueError, RecursionError) as error:
        raise SpoolError(f"cannot open the spool {path}: {error}; {REMEDY}") from error
    except _NoSuchShard as error:
        raise SpoolError(
            f"cannot take up the spool {path}: it holds shard {error}, and there are {shards} shards; "
            "start with the number of shards that it was written with"
        ) from error


class _NoSuchShard(Exception):
    """Its text is the number."""


def _read(db: sqlite3.Connection, sql: dict[str, str], shards: int) -> list[EarlierShard]:
    [(last_mid, last_row)] = db.execute(sql["last_numbers"])
    found = [EarlierShard(shard, last_row, last_mid) for shard in range(shards)]

    def of(shard: int) -> EarlierShard:
        if not 0 <= shard < shards:
            raise _NoSuchShard(shard)
        return found[shard]

    for mid, shard, message, instructions in db.execute(sql["messages"]):
        decoded = _message_decoder.decode(message), _instructions_decoder.decode(instructions)
        of(shard).batch.messages.append((mid, *decoded))
    for row, mid, shard, session, delivery in db.execute(sql["rows"]):
        of(shard).batch.rows.append((row, mid, session, *_entry_decoder.decode(delivery)))
    for name, state in db.execute(sql["positions"]):
        kind, _, shard = name.partition("/")
        for target in [of(int(shard))] if kind == SHARD else found:
            target.positions[kind if kind == SHARD else name] = state
    keyed = {message_id: (content, at_ms) for message_id, content, at_ms in db.execute(sql["keyed"])}
    for target in found:
        target.batch.keyed = dict(keyed)
    return found


def retire(path: Path) -> None:
    """Renames the file, and its -wal and -shm files, to `<name>.taken-up`; SQLite can still open it there. Nothing
    happens if it is not there. Raises SpoolError."""
    for suffix in ("", "-wal", "-shm"):  # the database first: without its -wal file it would be an older one
        file = path.with_name(path.name + suffix)
        try:
            if file.exists():
                file.rename(path.with_name(path.name + _TAKEN_UP + suffix))
        except OSError as error:
            raise SpoolError(f"cannot rename the spool {file}: {error}; {REMEDY}") from error
