"""An outbox that was restored from a backup: it gives the same sequences again, and no message is taken for another one
(G13)."""

import shutil
import sqlite3
from pathlib import Path

from edge.client.sqlite_store import SqliteStore
from edge.client.store import Batch, StoredMessage
from tests.unit.edge.client.client_harness import client
from tests.unit.gateway.http.http_harness import HttpHarness, run

CLIENT = "van-7"


def accept(file: Path, sequence: int) -> list[StoredMessage]:
    """A process accepts a message; all that wait then."""
    store = SqliteStore(file, CLIENT)
    incarnation = store.recover().incarnation
    one = StoredMessage(sequence, "t", b"x", 1, False, None, 1e9, 2, incarnation=incarnation)
    store.commit(Batch(added={sequence: one}))
    waiting = store.waiting(0, 10, 100)
    store.close()
    return waiting


def test_messages_after_the_backup_have_other_names(tmp_path: Path) -> None:
    """Those in the backup keep theirs: whoever has got them already can tell."""
    file, backup = tmp_path / "outbox", tmp_path / "backup"
    (first,) = accept(file, 1)
    shutil.copy(file, backup)
    before = accept(file, 2)
    shutil.copy(backup, file)
    after = accept(file, 2)
    assert before[0] == after[0] == first
    names = {(one.incarnation, one.sequence) for one in (*before, *after)}
    assert len(names) == 3


def test_a_file_of_an_earlier_build_keeps_the_names_of_its_messages(tmp_path: Path) -> None:
    file = tmp_path / "outbox"
    accept(file, 1)
    with sqlite3.connect(file) as db:
        db.execute("ALTER TABLE outbox DROP COLUMN incarnation")
        (of_the_file,) = db.execute("SELECT incarnation FROM identity").fetchone()
    db.close()
    old, new = accept(file, 2)
    assert old.incarnation == of_the_file != new.incarnation


def test_over_http_a_new_message_is_stored_after_a_restore(tmp_path: Path) -> None:
    """The gateway knew its sequence by the message that the restore has undone."""
    file, backup = tmp_path / "o", tmp_path / "backup"

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path / "g").start()

        async def publish(payload: bytes) -> None:
            async with client(f"http://127.0.0.1:{harness.port}", store=file) as van:
                await (await van.publish("t", payload)).acknowledged

        await publish(b"first")
        shutil.copy(file, backup)
        await publish(b"undone")
        shutil.copy(backup, file)
        await publish(b"after")
        await publish(b"undone")  # the same text as before is another message all the same
        assert await harness.stored() == [("t", one) for one in (b"first", b"undone", b"after", b"undone")]

    run(scenario())
