"""Who is finished with an unfinished message: written once, known after a restart, deleted in the end (Q1)."""

from gateway.shard.finished_clients import FinishedClients
from gateway.shard.messages import Message, PendingMessage
from gateway.shard.spool import Spool
from gateway.shard.spool_batch import SpoolBatch
from gateway.shard.spool_records import Marker


def held(position: int) -> PendingMessage:
    message = Message("id", "s", "a", b"", 1, False, None, b"\0", 0, position, 0)
    return PendingMessage(message, 0, position, 0.0, [])


class Life:
    """A home's life as far as this is concerned, over a spool; `written` are the names that it has written."""

    def __init__(self, spool: Spool, is_needed: bool = True) -> None:
        self._spool = spool
        self.finished = FinishedClients()
        self.finished.restore(spool.finished_clients(), spool.finished_parts(), lambda _: is_needed)
        self.written: list[str] = []

    def commit(self, *live: PendingMessage) -> None:
        clients, ended = self.finished.write(live)
        self.written += [name for names in clients.values() for name in names]
        batch = SpoolBatch(finished_clients=clients, ended_positions=ended)
        self._spool.commit(batch, Marker(0, 0, {}), 1, 1)


def test_each_client_is_written_once_and_known_after_a_restart() -> None:
    spool, message = Spool(":memory:"), held(7)
    life = Life(spool)
    message.finished += ["a", "b"]
    life.commit(message)
    life.commit(message)
    message.finished.append("c")
    life.commit(message)
    assert life.written == ["a", "b", "c"]
    later = Life(spool)
    assert list(later.finished.take(7)) == ["a", "b", "c"]
    assert list(later.finished.take(8)) == []
    message.finished = ["d"]
    later.commit(message)
    assert spool.finished_clients() == {7: ["a", "b", "c", "d"]}


def test_they_are_deleted_one_commit_after_nobody_needs_them() -> None:
    """A crash before that commit reads the message again."""
    spool, message = Spool(":memory:"), held(7)
    life = Life(spool)
    message.finished.append("a")
    life.commit(message)
    life.finished.ended(7)
    life.commit()
    assert spool.finished_clients() == {7: ["a"]}, "the marker before this one may be the last that is stored"
    life.commit()
    assert spool.finished_clients() == {}


def test_a_restart_deletes_those_of_messages_that_it_does_not_read_again() -> None:
    spool, message = Spool(":memory:"), held(7)
    life = Life(spool)
    message.finished.append("a")
    life.commit(message)
    Life(spool, is_needed=False).commit()
    assert spool.finished_clients() == {}
