"""A subscriber's state as a SQLite file: partitions' positions and source streams, in one transaction (S3).

:mod:`edge.client.sqlite_file` says how it is opened and what a commit means. A commit writes the source streams that
have changed, not all.
"""

from pathlib import Path
from typing import Any, Final

from edge.client.errors import StoreDamaged, StoreForeign
from edge.client.sqlite_file import SqliteFile, create_tables
from edge.feed_subscriber.replay import ReadPosition
from edge.feed_subscriber.state import StateChange, StoredState
from feeds.errors import FeedStateError
from feeds.merge_settings import MergeSettings
from feeds.merge_state import StreamState
from feeds.message import FEEDS, NUMBER_MAX, Feed
from feeds.state_codec import decode_state, encode_state
from schemas.sql import named_blocks

_SQL: Final = named_blocks(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))
_APPLICATION_ID: Final = 0x57415946  # "WAYF"
_FORMAT: Final = 1


class SqliteState(SqliteFile):
    """Implements :class:`edge.feed_subscriber.state.StateStore` on the file `path`, made if there is none. `source` is
    where the feed is read from: `kafka` or `gateway`, whose positions are not comparable."""

    def __init__(self, path: str | Path, name: str, feed: str, source: str, settings: MergeSettings) -> None:
        self._owner, self._settings = (name, feed, source), settings
        super().__init__(
            Path(path),
            _APPLICATION_ID,
            name="the state",
            in_use=" by another process: each subscriber needs its own file",
            foreign="no state of a subscriber of feeds: use another path",
        )

    def recover(self) -> StoredState:
        with self._translated():
            (*_, current) = self._db.execute(_SQL["subscriber"]).fetchone()
            partitions = {
                _checked(number): ReadPosition(_checked(position), _checked(append_ms))
                for number, position, append_ms in self._db.execute(_SQL["partitions"])
            }
            ended = {_text(name): _checked(epoch) for name, epoch in self._db.execute(_SQL["ended"])}
            if current not in FEEDS:
                raise ValueError(f"slot {current!r} is none")
            return StoredState(self._streams(), partitions, ended, Feed(current))

    def commit(self, change: StateChange) -> None:
        with self.transaction() as db:
            saved = [(name, encode_state(one)) for name, one in change.streams.items() if one is not None]
            db.executemany(_SQL["save_stream"], saved)
            db.executemany(_SQL["remove_stream"], [(name,) for name, one in change.streams.items() if one is None])
            for partition, position in change.partitions.items():
                if position is None:
                    db.execute(_SQL["remove_partition"], (partition,))
                else:
                    db.execute(_SQL["save_partition"], (partition, *position))
            db.executemany(_SQL["save_ended"], change.ended.items())
            if change.current is not None:
                db.execute(_SQL["save_current"], (int(change.current),))

    def _streams(self) -> tuple[StreamState, ...]:
        try:
            found = [decode_state(_bytes(raw), self._settings) for (raw,) in self._db.execute(_SQL["streams"])]
        except FeedStateError as error:
            raise StoreDamaged(
                f"{self._name}: {error}; use the version and limits that wrote it, or move it away to start anew"
            ) from error
        return tuple(found)

    def _make(self, *, is_new: bool) -> None:
        if is_new:
            create_tables(self._db, _SQL["schema"])
            self._db.execute(_SQL["begin"], self._owner)
            self._db.execute(f"PRAGMA user_version = {_FORMAT}")

    def _open(self) -> None:
        super()._open()
        self._check_format(_FORMAT, "path")
        found = self._db.execute(_SQL["subscriber"]).fetchone()
        if found is None:
            raise StoreDamaged(f"{self._path} is damaged: its subscriber is missing; move the file away to start anew")
        if found[:3] != self._owner:
            raise StoreForeign(
                f"{self._path} is the state of subscriber {found[0]!r} of feed {found[1]!r} over {found[2]}, not of "
                f"{self._owner[0]!r} of {self._owner[1]!r} over {self._owner[2]}: use another path"
            )


def _checked(value: Any) -> int:
    if not isinstance(value, int) or not 0 <= value <= NUMBER_MAX:
        raise ValueError(f"{value!r:.100} is no number of 0 to 2^63-1")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.100} is no text")
    return value


def _bytes(value: Any) -> bytes:
    if not isinstance(value, bytes):
        raise TypeError(f"{value!r:.100} is no sequence of bytes")
    return value
