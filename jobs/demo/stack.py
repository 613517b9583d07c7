"""The demo's own stack: started in a fresh directory with free ports, like `waystation up`, and stopped."""

import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import resources
from pathlib import Path

from jobs.demo.children import wait_or_kill
from jobs.demo.errors import DemoError
from jobs.errors import StackError
from jobs.stack import local
from jobs.stack.process import wait_until
from jobs.stack.state import StackState, hold, read_state, running_state, stop_leftovers
from schemas.readiness import read_json, write_json

MARK = "demo.json"
LOCK = "up.lock"
OPEN_FILES = 8_192
"""A thousand clients need more sockets than many systems allow by default, in this process and in the gateway."""

ABANDON_S = 5.0


def demo_overlay() -> Path:
    """The overlay for a stack that lives for two minutes; the user's overlays override it."""
    return Path(str(resources.files("conf").joinpath("demo.toml")))


def make_room(data: Path, stop_timeout_s: float) -> None:
    """Empty the directory of an earlier demo, or create it. Raises DemoError if it is in use or not a demo's."""
    state = read_state(data)
    if state is not None and state.supervisor.alive():
        raise DemoError(
            f"the stack of an earlier demo is still running in {data}: stop it with `waystation --data {data} down`"
        )
    if data.exists() and read_json(data / MARK) is None and any(path.name != LOCK for path in data.iterdir()):
        raise DemoError(
            f"{data} contains files that are not from a demo: move them away, or choose another directory with --data"
        )
    with hold(data):
        stop_leftovers(data, stop_timeout_s)
        for path in data.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            elif path.name != LOCK:
                path.unlink()
        write_json(data / MARK, {"of": "waystation demo"})


def allow_open_files() -> None:
    """Raise the limit on open files, for this process and those it starts, as far as allowed and needed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


@contextmanager
def running(
    data: Path,
    overlays: Sequence[Path],
    environ: Mapping[str, str],
    stop_timeout_s: float,
    keep: Callable[[], bool],
    say: Callable[[str], None],
    only: Sequence[str] = (),
) -> Iterator[StackState]:
    """A stack in `data`. It is stopped at the end, whatever happens, unless `keep()` says to leave it running. `only`:
    its parts, with those that they need; empty: all.

    The output of `up` goes to `say`, line by line. Raises StackError, with the reason, if it does not start.
    """
    starting = _Starting(data, overlays, environ, only)
    try:
        starting.wait(say)
        yield running_state(data)
    finally:
        starting.abandon()
        if not keep():
            with _undisturbed():
                stop(data, stop_timeout_s)


def stop(data: Path, stop_timeout_s: float) -> None:
    """Stop the stack, even one that has only just begun to start."""
    local.stop(data, stop_timeout_s)
    if not wait_until(lambda: _is_free(data), stop_timeout_s):
        local.stop(data, stop_timeout_s)


class _Starting:
    """A starting `waystation up --detach`."""

    def __init__(
        self, data: Path, overlays: Sequence[Path], environ: Mapping[str, str], only: Sequence[str] = ()
    ) -> None:
        command = [sys.executable, "-m", "jobs.cli.main", "--data", str(data)]
        for overlay in (demo_overlay(), *overlays):
            command += ["--conf", str(overlay.absolute())]
        self._child = subprocess.Popen(
            [*command, "up", "--detach", "--free-ports", *(f"--only={part}" for part in only)],
            env={**environ, "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def wait(self, say: Callable[[str], None]) -> None:
        """Wait until everything is ready. Raises StackError."""
        assert self._child.stdout is not None
        assert self._child.stderr is not None
        for line in self._child.stdout:
            if line.startswith("  "):
                say(line.rstrip())
            elif line.startswith("ready in"):
                break
        self._child.stdout.read()
        reason = self._child.stderr.read().strip()
        if self._child.wait():
            raise StackError(reason or "the stack did not start: read its logs")

    def abandon(self) -> None:
        """Stop it, and the parts it has begun to start, unless it has ended by itself."""
        if self._child.poll() is None:
            self._child.send_signal(signal.SIGINT)
            wait_or_kill([self._child], ABANDON_S)
        for stream in (self._child.stdout, self._child.stderr):
            if stream is not None:
                stream.close()


def _is_free(data: Path) -> bool:
    """Whether no `up` holds the directory."""
    try:
        with hold(data):
            return True
    except StackError:
        return False


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Ignores a second Ctrl-C, so that the stack is stopped."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
