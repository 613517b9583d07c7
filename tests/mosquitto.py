"""A mosquitto broker of a test's own, on free ports, stopped and started again as a test likes."""

import getpass
import re
import shutil
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType

from tests.namespaces import Namespace

HOST = "127.0.0.1"
START_S = 20.0
PROGRAM = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")


def free_port() -> int:
    """A port nobody listens on."""
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        return int(listener.getsockname()[1])


class Mosquitto:
    """`with Mosquitto(tmp_path) as broker:`; `lines` go into its configuration, to say who may connect. Sessions
    survive a stop, as they are written to disk. With `inside` it listens in a network namespace, on
    all its addresses."""

    def __init__(self, directory: Path, *lines: str, inside: Namespace | None = None) -> None:
        lines = lines or ("allow_anonymous true",)
        self.port = free_port()
        self.websocket_port = free_port()
        self._log = directory / "mosquitto.log"
        self._configuration = directory / "mosquitto.conf"
        self._inside = inside
        host = HOST if inside is None else "0.0.0.0"
        listeners = (f"listener {self.port} {host}", f"listener {self.websocket_port} {host}", "protocol websockets")
        store = (
            "persistence true",
            f"persistence_location {directory}/",
            f"user {getpass.getuser()}",
            *lines,
        )
        self._configuration.write_text("\n".join((*store, *listeners)) + "\n")
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "Mosquitto":
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def start(self) -> None:
        """Returns once it accepts connections."""
        assert PROGRAM is not None, "mosquitto is missing: install the package mosquitto, see CONTRIBUTING.md"
        with self._log.open("ab") as log:
            argv = [PROGRAM, "-v", "-c", str(self._configuration)]
            argv = argv if self._inside is None else self._inside.command(*argv)
            self._process = subprocess.Popen(argv, stdout=log, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + START_S
        for port in (self.port, self.websocket_port):
            while not (_listens(port) if self._inside is None else self._inside.call(_listens, port)):
                assert self._process.poll() is None, self._log.read_text()
                assert time.monotonic() < deadline, "mosquitto does not start"
                time.sleep(0.02)

    def stop(self) -> None:
        """Ends it as an operator would; it writes its sessions."""
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            process.wait(START_S)

    @property
    def log(self) -> str:
        """What it has logged so far; its last lines may be missing while it runs."""
        return self._log.read_text()

    def sent(self, client_id: str, qos: int) -> list[int]:
        """The packet ids of what it has sent to a client, in order; call it after :meth:`stop`, which completes the
        log."""
        line = re.compile(rf"Sending PUBLISH to {re.escape(client_id)} \(d\d, q{qos}, r\d, m(\d+),")
        return [int(packet_id) for packet_id in line.findall(self._log.read_text())]


def _listens(port: int) -> bool:
    try:
        socket.create_connection((HOST, port), 1).close()
    except ConnectionRefusedError:
        return False
    return True
