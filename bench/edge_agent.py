"""The agent that is measured: `waystation agent up` in a directory of its own, with its parts on, and a backlog that an
earlier process has left in its store.

The store is filled by its own class, as by an agent that had no network for days: over SMTP it would take minutes.
"""

import os
import secrets
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
import psutil

from bench.processes import cpu_s
from edge.agent import control
from edge.agent.agent_store import AgentStore
from edge.agent.envelope import FILE_TYPE, File
from edge.client.store import Batch, SessionRow, StoredMessage
from harness.processes import HOST, LOG_TAIL, NotReadyError
from jobs.stack.process import ManagedProcess, stop_all

CLIENT_ID: Final = "bench-agent"
TOPIC: Final = "bench/edge"
DOMAIN: Final = "example.org"
READY_S: Final = 60.0
STOP_S: Final = 30.0
ROWS_A_COMMIT: Final = 5_000
LIFETIME_S: Final = 86_400.0
_POLL_S: Final = 0.01

SETTINGS: Final = f"""
client_id = "{CLIENT_ID}"
[platform]
connect_points = ["mqtt://{HOST}:{{gateway_port}}"]
[store]
directory = "{{directory}}"
[smtp.routes]
"{DOMAIN}" = "bench-head-office"
[smtp.submission]
enabled = true
port = {{smtp_port}}
[smtp.relay]
enabled = true
domains = ["van.example"]
[folders]
enabled = true
inbox = "inbox"
[folders.outboxes]
"out" = "{TOPIC}"
"""


class AgentProcess:
    """`waystation agent up`, with submission, relay and one folder, for a gateway at `gateway_port` of this machine.

    `start_s`: how long the last start took until it said that it is ready, seconds.
    """

    def __init__(self, directory: Path, gateway_port: int, smtp_port: int) -> None:
        self._settings = directory / "agent.toml"
        self._log = directory / "agent.log"
        self._store = directory / "s"
        text = SETTINGS.format(gateway_port=gateway_port, smtp_port=smtp_port, directory=self._store.name)
        self._settings.write_text(text)
        self._process: ManagedProcess | None = None
        self.start_s = 0.0

    def fill(self, messages: int, payload_bytes: int) -> None:
        """Leaves files of random bytes in the store, which must be new. The system's memory of the file is dropped, so
        that a start reads it from the disk (Linux)."""
        self._store.mkdir(mode=0o700)
        store = AgentStore(self._store / "outbox", CLIENT_ID, log_entries=100_000)
        try:
            for first in range(1, messages + 1, ROWS_A_COMMIT):
                numbers = range(first, min(first + ROWS_A_COMMIT, messages + 1))
                added = {number: stored_file(number, payload_bytes) for number in numbers}
                session = SessionRow(CLIENT_ID, last_sequence=numbers[-1], wall_s=time.time())
                store.commit(Batch(added=added, session=session))
        finally:
            store.close()
        with (self._store / "outbox").open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    @contextmanager
    def running(self) -> Iterator["AgentProcess"]:
        """Raises NotReadyError."""
        self._log.unlink(missing_ok=True)
        argv = [sys.executable, "-m", "edge.cli.main", "agent", "up", "--conf", str(self._settings)]
        began = time.monotonic()
        self._process = process = ManagedProcess(argv, {**os.environ, "PYTHONUNBUFFERED": "1"}, self._log)
        try:
            while "ready: agent" not in self._log.read_text():
                if process.ended() or time.monotonic() - began > READY_S:
                    raise NotReadyError(f"the agent is not ready: {self._log.read_text()[-LOG_TAIL:]}")
                time.sleep(_POLL_S)
            self.start_s = time.monotonic() - began
            yield self
        finally:
            stop_all([process], STOP_S)

    @property
    def pid(self) -> int:
        assert self._process is not None, "it has been started"
        return self._process.identity.pid

    @property
    def rss_mb(self) -> float:
        """Resident memory of its process."""
        return float(psutil.Process(self.pid).memory_info().rss) / 2**20

    @property
    def cpu_s(self) -> float:
        return cpu_s(psutil.Process(self.pid))

    def status(self) -> dict[str, Any]:
        """Its answer to `waystation agent status`."""
        found: dict[str, Any] = control.ask(self._store, "status")
        return found

    def waiting(self) -> int:
        """Messages in its outbox."""
        return int(self.status()["outbox"]["messages"])


def stored_file(sequence: int, payload_bytes: int) -> StoredMessage:
    """A row of the outbox, as the agent makes it of a file."""
    file = File(secrets.token_hex(16), f"{sequence}.bin", os.urandom(payload_bytes))
    properties: dict[str, Any] = {"content_type": FILE_TYPE, "user_property": file.properties()}
    size = len(TOPIC) + payload_bytes + len(msgspec.msgpack.encode(properties))
    return StoredMessage(sequence, TOPIC, file.content, 1, False, properties, LIFETIME_S, size)
