"""Files that are reloaded when they change: certificates, passwords, keys, rules; no restart, no disconnect."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

import structlog

from schemas.errors import SettingsError, WaystationError, why_unreadable

T = TypeVar("T")

_INTERVAL_S = 1.0

log = structlog.get_logger(__name__)


class Watched(Generic[T]):
    """The content of `paths`, as `read` returns it. `current` is the last content that could be read: while the files
    are broken or missing, it stays in force, and the log says so once per change.

    The first read raises what `read` raises. `then` is called with each later content, on the loop.
    """

    def __init__(self, paths: Sequence[str], read: Callable[[], T], then: Callable[[T], None] | None = None) -> None:
        self._paths = [Path(path) for path in paths]
        self._read = read
        self.then = then
        self._seen = self._look()  # before reading, so that a change during the read is noticed
        self.current = read()

    async def refresh(self, *, anyway: bool = False) -> None:
        """Reads the files again, on a thread, if they have changed or with `anyway`."""
        seen = await asyncio.to_thread(self._look)
        if seen == self._seen and not anyway:
            return
        self._seen = seen
        files = ", ".join(str(path) for path in self._paths)
        try:
            current = await asyncio.to_thread(self._read)
        except Exception as error:  # whatever is in the files: the gateway keeps the previous content
            reason = str(error) if isinstance(error, WaystationError) else type(error).__name__
            log.error("cannot use changed files; keeping their previous content", files=files, reason=reason)
            return
        self.current = current
        log.info("files reloaded", files=files)
        if self.then is not None:
            self.then(current)

    def _look(self) -> list[tuple[int, int, int] | None]:
        """Values that differ if a file has changed: time, size and inode; None if it is missing."""
        found: list[tuple[int, int, int] | None] = []
        for path in self._paths:
            try:
                status = path.stat()
            except OSError:
                found.append(None)
            else:
                found.append((status.st_mtime_ns, status.st_size, status.st_ino))
        return found


class Watcher:
    """Checks all files once a second, and at once on request."""

    def __init__(self, files: Sequence[Watched[Any]]) -> None:
        self._files = files
        self._wake = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._run()) if files else None

    def reload(self) -> None:
        """Reads all files again, changed or not (SIGHUP)."""
        self._wake.set()

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_INTERVAL_S):
                    await self._wake.wait()
            anyway = self._wake.is_set()
            self._wake.clear()
            for file in self._files:
                await file.refresh(anyway=anyway)


def read_text(path: str, setting: str) -> str:
    """The text of a file named by a setting; raises SettingsError, which says what to do."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"cannot read {path} ({setting}): {why_unreadable(error)}") from error
