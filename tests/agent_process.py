"""`waystation agent up` as a process of its own: started, killed, stopped, asked."""

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from edge.agent import control
from tests.documents import ROOT
from tests.namespaces import Namespace

STOP_S = 30.0


class AgentProcess:
    """An agent with the settings `text`, in a directory of its own, and perhaps in a network namespace."""

    def __init__(self, directory: Path, text: str, inside: Namespace | None = None) -> None:
        directory.mkdir()
        self.directory, self._inside = directory, inside
        self._process: subprocess.Popen[bytes] | None = None
        (directory / "agent.toml").write_text(text)

    def start(self) -> None:
        """Returns when it is ready."""
        command = [sys.executable, "-m", "edge.cli.main", "agent", "up", "--conf", str(self.directory / "agent.toml")]
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command if self._inside is None else self._inside.command(*command),
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        assert self._process.stdout is not None
        with self._process.stdout as stdout:
            line = stdout.readline()
        assert line.startswith(b"ready"), (line, self.log())

    def signal(self, number: signal.Signals) -> int:
        """Returns its exit status once it has ended."""
        assert self._process is not None
        self._process.send_signal(number)
        return self._process.wait(STOP_S)

    def freeze(self, is_frozen: Callable[[int], bool]) -> None:
        """Stops it between two system calls; `is_frozen` says by its process id whether it is."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        assert is_frozen(self._process.pid)

    def kill(self) -> None:
        assert self.signal(signal.SIGKILL) == -signal.SIGKILL

    def end(self) -> None:
        """Kills it, if it runs still: for the end of a test that has failed."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait(STOP_S)

    def stop(self) -> None:
        """As an operator would."""
        assert self.signal(signal.SIGTERM) == 0, self.log()
        assert "Traceback" not in self.log()

    def log(self) -> str:
        return (self.directory / "log").read_text()

    def ask(self, command: str, **request: Any) -> Any:
        """What the running agent answers to a command of `waystation agent`."""
        return control.ask(self.directory / "agent", command, **request)

    def is_connected(self) -> bool:
        return bool(self.status()["connected"])

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.ask("status")
        return found
