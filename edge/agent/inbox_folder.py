"""Writes files that come from the platform into a folder, each exactly once (M16, M21).

The file's name is the message's id. Four steps, each on disk before the next: the content under a temporary name; the
id in the list of what was seen; the file under its name; the end in the list. After a kill the list says that a file
was begun, and the folder whether it has been renamed. So the same id is never written twice, also if the application
has removed the file in between.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from edge.agent import way
from edge.agent.agent_file import AgentFile
from edge.agent.envelope import File
from edge.agent.errors import ListenerError
from edge.agent.way import Step
from edge.client.errors import DiskFull, StoreFailed
from edge.durable import NO_SPACE, sync_directory
from schemas.sql import named_blocks

_SQL: Final = named_blocks(Path(__file__).with_name("inbox_store.sql").read_text(encoding="utf-8"))
_APPLICATION_ID: Final = 0x57415946  # "WAYF"
PART: Final = "inbox"


class InboxFolder:
    """`folder`: None if no files are wanted. `list_path`: the list of what was seen; `remembered`: how many ids it has.
    `file` is the list, with the log. Used from one thread.

    Opening ends what an earlier process has begun. Raises StoreError, ListenerError if the folder cannot be made.
    """

    def __init__(
        self, folder: Path | None, list_path: Path, *, remembered: int, log_entries: int, wall_s: Callable[[], float]
    ) -> None:
        self._folder, self._remembered, self._wall_s = folder or list_path.parent, remembered, wall_s
        self.takes_files = folder is not None
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ListenerError(f"the inbox folder {folder} cannot be made: {error.strerror}") from error
        self.file = AgentFile(list_path, _APPLICATION_ID, _SQL["schema"], log_entries)
        if folder is None:
            return
        with self.file.transaction() as db:
            begun = [identifier for (identifier,) in db.execute(_SQL["unwritten"])]
        for identifier in begun:
            self._finish(identifier)

    def close(self) -> None:
        self.file.close()

    def take(self, file: File) -> bool:
        """Returns once the file is in the folder, on disk; False if its id was seen before. Raises DiskFull,
        StoreFailed: then it can be given again."""
        with self.file.transaction() as db:
            row = db.execute(_SQL["find"], (file.id,)).fetchone()
            if row is not None:
                self.file.log.add(db, [Step(file.id, self._wall_s(), PART, way.REPEATED)])
        if row is not None:
            if not row[0]:
                self._finish(file.id)
            return False
        self._translated(lambda: self._write(file))
        with self.file.transaction() as db:
            db.execute(_SQL["add"], (file.id,))
            db.execute(_SQL["bound"], (self._remembered,))
            self.file.log.add(db, [Step(file.id, self._wall_s(), PART, way.RECEIVED, f"{len(file.content)} bytes")])
        self._finish(file.id)
        return True

    def refused(self, identifier: str, reason: str) -> None:
        """A message that no part here takes."""
        with self.file.transaction() as db:
            self.file.log.add(db, [Step(identifier, self._wall_s(), PART, way.REFUSED, reason)])

    def _write(self, file: File) -> None:
        temporary = self._temporary(file.id)
        descriptor = os.open(temporary, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_NOFOLLOW, 0o600)
        with open(descriptor, "wb") as output:
            output.write(file.content)
            output.flush()
            os.fsync(output.fileno())
        sync_directory(self._folder)  # its name, too: if it is missing the file counts as renamed

    def _finish(self, identifier: str) -> None:
        """Renames the file, unless that has been done."""

        def rename() -> None:
            temporary = self._temporary(identifier)
            if temporary.exists():
                temporary.rename(self._folder / identifier)
            sync_directory(self._folder)

        self._translated(rename)
        with self.file.transaction() as db:
            db.execute(_SQL["written"], (identifier,))
            self.file.log.add(db, [Step(identifier, self._wall_s(), PART, way.WRITTEN)])

    def _temporary(self, identifier: str) -> Path:
        return self._folder / f".{identifier}.tmp"

    def _translated(self, call: Callable[[], None]) -> None:
        try:
            call()
        except OSError as error:
            kind = DiskFull if error.errno in NO_SPACE else StoreFailed
            raise kind(f"the folder {self._folder} cannot be written: {error.strerror}") from error
