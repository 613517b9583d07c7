"""Takes files from folders (M16): an application renames a file into a folder, and the agent sends it.

A file is taken when it has a name without a leading dot and without the suffix of a partial file, so an application
writes under such a name first. The file is removed, or moved to `sent`, once the message is on disk in the store. If
the agent is killed in between, the file is sent again under the same id, by which the receiver recognises it: the id
follows from the agent, the folder, and the file's name, inode, size and time.

What cannot be sent, because it is too large, goes to the folder's `refused`. If the store is full the files wait. One
that cannot be read, or not moved away, is tried again with each scan; the others do not wait for it.
"""

import asyncio
import hashlib
import logging
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from edge.agent.envelope import NAME_BYTES_MAX, File
from edge.agent.errors import ListenerError
from edge.agent.mailroom import Mailroom
from edge.agent.settings import FoldersSettings
from edge.client.errors import MessageTooLarge, NotAccepted, StoreFull
from edge.durable import sync_directory

SENT: Final = "sent"
REFUSED: Final = "refused"
PARTIAL: Final = (".tmp", ".part", ".partial", ".crdownload", "~")

_log: Final = logging.getLogger("waystation.agent")


class OutboxFolders:
    """`message_bytes`: of the largest file. Raises ListenerError if a folder cannot be made."""

    def __init__(self, settings: FoldersSettings, agent: str, message_bytes: int, mailroom: Mailroom) -> None:
        self._settings, self._agent, self._message_bytes, self._mailroom = settings, agent, message_bytes, mailroom
        self._topics: Mapping[Path, str] = {Path(folder): topic for folder, topic in settings.outboxes.items()}
        self._complained: set[Path] = set()  # in the last scan
        self._unmoved: dict[Path, str] = {}  # ids of files that are in the store and still here
        for folder in self._topics:
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise ListenerError(f"the outbox folder {folder} cannot be made: {error.strerror}") from error

    async def run(self) -> None:
        """For ever. Looks through the folders: no file system has to report changes."""
        while True:
            await self.scan()
            await asyncio.sleep(self._settings.rescan_s)

    async def scan(self) -> int:
        """Takes what is there; how many files."""
        taken, problems = 0, dict[Path, str]()
        for folder, topic in self._topics.items():
            try:
                for path in files(folder):
                    try:
                        taken += await self._take(path, topic)
                    except OSError as error:
                        problems[path] = f"cannot be read or moved away: {error.strerror}"
            except StoreFull as error:
                problems[folder] = str(error)
            except OSError as error:
                problems[folder] = str(error.strerror)
        for path, problem in problems.items():
            if path not in self._complained:
                _log.warning("%s waits: %s", path, problem)
        self._complained = set(problems)
        self._unmoved = {path: identifier for path, identifier in self._unmoved.items() if path in problems}
        return taken

    async def _take(self, path: Path, topic: str) -> bool:
        try:
            file = read(path, self._agent, self._message_bytes)
            if file is None:
                return False
            if self._unmoved.get(path) != file.id:
                await self._mailroom.send_file(topic, file)
                self._unmoved[path] = file.id
        except StoreFull:
            raise
        except NotAccepted as error:
            _log.error("%s is refused: %s", path, error)
            move(path, REFUSED)
            return False
        if self._settings.taken == "keep":
            move(path, SENT)
        else:
            path.unlink(missing_ok=True)
            sync_directory(path.parent)
        del self._unmoved[path]
        return True


def is_complete(name: str) -> bool:
    """Whether a file of this name is complete."""
    return not name.startswith(".") and not name.lower().endswith(PARTIAL)


def files(folder: Path) -> Iterator[Path]:
    """The regular files in it that are complete, the oldest first. Raises OSError."""
    found = []
    with os.scandir(folder) as entries:
        for entry in entries:
            try:
                if is_complete(entry.name) and entry.is_file(follow_symlinks=False):
                    found.append((entry.stat(follow_symlinks=False).st_mtime_ns, entry.name))
            except FileNotFoundError:
                continue
    return (folder / name for _, name in sorted(found))


def read(path: Path, agent: str, message_bytes: int) -> File | None:
    """The file with its id; None if it is gone, or no regular file any more. Raises MessageTooLarge, OSError."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    with open(descriptor, "rb") as source:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return None
        if status.st_size > message_bytes:
            raise MessageTooLarge(f"the file has {status.st_size:,} bytes, and {message_bytes:,} are allowed")
        content = source.read(message_bytes + 1)
    facts = (agent, str(path), str(status.st_ino), str(status.st_size), str(status.st_mtime_ns))
    identifier = hashlib.sha256("\0".join(facts).encode(errors="surrogateescape")).hexdigest()[:32]
    name = path.name.encode(errors="replace")[:NAME_BYTES_MAX].decode(errors="ignore")
    return File(identifier, name, content)


def move(path: Path, into: str) -> None:
    """Moves a file to a folder below its own; one of the same name there is kept, under another name."""
    target = path.parent / into
    target.mkdir(exist_ok=True)
    free, number = target / path.name, 1
    while free.exists():
        number += 1
        free = target / f"{path.name}.{number}"
    path.rename(free)
    sync_directory(target)
    sync_directory(path.parent)
