"""A subscriber's state as a file: what is committed is there, whole; what is damaged or another's is refused (S3)."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from edge.client.errors import StoreDamaged, StoreForeign, StoreInUse
from edge.feed_subscriber.items import FeedDelivery, Lost
from edge.feed_subscriber.replay import ReadPosition
from edge.feed_subscriber.sqlite_state import SqliteState
from edge.feed_subscriber.state import StateChange, StoredState
from edge.feed_subscriber.stream_view import StreamView
from feeds.merge_settings import MergeSettings
from feeds.merge_state import StreamState
from feeds.message import Feed, stream_id

RADAR, SHIPS = stream_id("radar", 0), stream_id("ships", 3)
SETTINGS = MergeSettings()


def opened(path: Path, name: str = "desk-1", feed: str = "flight", source: str = "kafka") -> SqliteState:
    return SqliteState(path / "state", name, feed, source, SETTINGS)


def state_at(stream: str, number: int) -> StreamState:
    view = StreamView(stream, 0, SETTINGS, is_start=True)
    view.commit(Lost(ordinal=1, stream=stream, first=0, last=number - 1, reason="passed"))
    for part in (0, 1):
        view.commit(
            FeedDelivery(ordinal=2, stream=stream, sequence=number, part=part, payload=b"x", read_us=0, adapter="a")
        )
    return view.state()


def test_what_is_committed_is_found(tmp_path: Path) -> None:
    store = opened(tmp_path)
    assert store.recover() == StoredState()
    store.commit(StateChange({RADAR: state_at(RADAR, 5), SHIPS: state_at(SHIPS, 7)}, {0: ReadPosition(9, 1)}, {}))
    store.commit(StateChange({RADAR: state_at(RADAR, 6)}, {0: None, 3: ReadPosition(4, 2)}, {}, Feed.BACKUP))
    store.commit(StateChange({SHIPS: None}, {}, {"ships": 3}))
    store.close()
    store = opened(tmp_path)
    found = store.recover()
    store.close()
    assert found == StoredState((state_at(RADAR, 6),), {3: ReadPosition(4, 2)}, {"ships": 3}, Feed.BACKUP)


def test_a_process_that_ends_in_a_commit_leaves_all_or_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At each statement."""
    before = StateChange({RADAR: state_at(RADAR, 5)}, {0: ReadPosition(9, 1)}, {})
    after = StateChange({RADAR: state_at(RADAR, 6), SHIPS: state_at(SHIPS, 2)}, {0: ReadPosition(19, 1)}, {"x": 1})
    for count in range(1, 6):
        path = tmp_path / str(count)
        path.mkdir()
        store = opened(path)
        store.commit(before)
        statements = 0

        def killed(_: str, limit: int = count) -> None:
            nonlocal statements
            statements += 1
            if statements > limit:
                raise KeyboardInterrupt

        store._db.set_trace_callback(None)
        original = store._db
        store._db = _Ending(original, killed)  # type: ignore[assignment]
        with pytest.raises(KeyboardInterrupt):
            store.commit(after)
        original.close()
        store = opened(path)
        found = store.recover()
        store.close()
        assert found == StoredState((state_at(RADAR, 5),), {0: ReadPosition(9, 1)})


class _Ending:
    """A connection whose process ends before a statement: nothing is rolled back by us."""

    def __init__(self, db: sqlite3.Connection, before: object) -> None:
        self._db, self._before = db, before
        self.in_transaction = False

    def execute(self, sql: str, *arguments: object) -> object:
        self._before(sql)  # type: ignore[operator]
        return self._db.execute(sql, *arguments)  # type: ignore[arg-type]

    def executemany(self, sql: str, rows: object) -> object:
        self._before(sql)  # type: ignore[operator]
        return self._db.executemany(sql, rows)  # type: ignore[arg-type]


def test_another_s_file_is_refused(tmp_path: Path) -> None:
    store = opened(tmp_path)
    with pytest.raises(StoreInUse):
        opened(tmp_path)
    store.close()
    for other in ({"name": "desk-2"}, {"feed": "ships"}, {"source": "gateway"}):
        with pytest.raises(StoreForeign, match=next(iter(other.values()))):
            opened(tmp_path, **other)
    (tmp_path / "state").unlink()
    sqlite3.connect(tmp_path / "state").execute("CREATE TABLE x (y)").connection.close()
    with pytest.raises(StoreForeign, match="no state of a subscriber"):
        opened(tmp_path)


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE streams SET state = x'00'",
        "UPDATE streams SET state = 'text'",
        "UPDATE partitions SET position = -1",
        "UPDATE partitions SET position = 'x'",
        "UPDATE subscriber SET current = 7",
        "INSERT INTO ended VALUES ('x', -3)",
        "DELETE FROM subscriber",
    ],
)
def test_a_damaged_file_is_refused_with_what_to_do(tmp_path: Path, damage: str) -> None:
    store = opened(tmp_path)
    store.commit(StateChange({RADAR: state_at(RADAR, 5)}, {0: ReadPosition(9, 1)}, {}))
    store.close()
    db = sqlite3.connect(tmp_path / "state")
    db.execute(damage)
    db.commit()
    db.close()
    with pytest.raises(StoreDamaged, match="to start anew"), closing(opened(tmp_path)) as store:
        store.recover()
