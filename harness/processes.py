"""Programs of Waystation and brokers as processes of their own: started, killed, stopped, and what they log."""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from jobs.stack import jars
from jobs.stack.broker import BrokerSpec, answers, prepare
from jobs.stack.ports import Ports
from jobs.stack.process import ManagedProcess, stop_all, wait_until
from schemas.readiness import PART_VARIABLE, read_ready, ready_file

HOST = "127.0.0.1"
START_S = 60.0
STOP_S = 30.0
LOG_TAIL = 4_000
SHORT_LIVED = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Options of a JVM that lives for minutes on few processors: one compiler, and a collector without threads."""


class NotReadyError(AssertionError):
    """A process has ended, or is not ready in time; the message has the end of its log."""


class Program:
    """`python -m MODULE ARGUMENTS` over the data directory `data`, as the part `name`, one process after the other."""

    def __init__(self, data: Path, name: str, module: str, *arguments: str, environ: Mapping[str, str]) -> None:
        self.data = data
        self.name = name
        self.argv = [sys.executable, "-m", module, *arguments]
        self.environ = {**environ, "WAYSTATION_DATA": str(data), PART_VARIABLE: name}
        self.log_file = data / f"{name}.log"
        self.process: ManagedProcess
        self.addresses: dict[str, str] = {}
        """`host:port` by listener, of the last process that was ready."""

    def launch(self, ready: str | None = None) -> None:
        """Starts it, and waits for nothing."""
        ready_file(self.data, ready or self.name).unlink(missing_ok=True)
        self.process = ManagedProcess(self.argv, self.environ, self.log_file)

    def start(self, timeout_s: float = START_S, *, ready: str | None = None) -> "Program":
        """Returns once it has said under the name `ready` (by default its own) that it is ready. Raises
        NotReadyError, and kills it, if it does not."""
        name = ready or self.name
        self.launch(name)
        try:
            wait_until(lambda: self.process.ended() or read_ready(self.data, name) is not None, timeout_s)
            announced = read_ready(self.data, name)
            if self.process.ended() or announced is None:
                raise NotReadyError(f"{' '.join(self.argv[1:])} is not ready: {self.log()[-LOG_TAIL:]}")
            self.addresses = announced.get("listeners", {})
        except BaseException:
            self.kill()
            raise
        return self

    @property
    def pid(self) -> int:
        return self.process.identity.pid

    def port_of(self, listener: str) -> int:
        return int(self.addresses[listener].rpartition(":")[2])

    def log(self) -> str:
        return self.log_file.read_text()

    def ended(self) -> bool:
        return self.process.ended()

    def kill(self) -> None:
        """kill -9 of the process and of all it has started, as when the machine loses power."""
        self.process.kill()
        assert wait_until(self.process.ended, STOP_S), f"{self.name} lives on"

    def suspend(self, for_s: float) -> None:
        """All its processes stand still for so long."""
        for number, then_s in ((signal.SIGSTOP, for_s), (signal.SIGCONT, 0.0)):
            os.killpg(self.pid, number)
            time.sleep(then_s)

    def stop(self, timeout_s: float = STOP_S) -> int:
        """SIGTERM, and SIGKILL if that is not enough; the exit status."""
        stop_all([self.process], timeout_s)
        assert self.process.exit_code is not None
        return self.process.exit_code

    @contextmanager
    def running(self, timeout_s: float = START_S) -> Iterator["Program"]:
        self.start(timeout_s)
        try:
            yield self
        finally:
            self.stop()


class Gateway(Program):
    """A gateway on free ports; `changes` are further environment variables."""

    def __init__(self, data: Path, bootstrap: str, prefix: str, **changes: str) -> None:
        free = {f"WAYSTATION_GATEWAY__{name}_PORT": "0" for name in ("MQTT", "WEBSOCKET", "HTTP", "METRICS")}
        environ = {
            **os.environ,
            "WAYSTATION_KAFKA__BOOTSTRAP": bootstrap,
            "WAYSTATION_KAFKA__PREFIX": prefix,
            "WAYSTATION_KAFKA__SHARDS": "4",
            "WAYSTATION_GATEWAY__SPOOL_AFTER_S": "0.5",
            **free,
            **changes,
        }
        super().__init__(data, "gateway", "gateway", environ=environ)

    @property
    def port(self) -> int:
        return self.port_of("mqtt")

    @property
    def http_port(self) -> int:
        return self.port_of("http")


class Broker:
    """A Kafka broker on free ports, over `directory`. `properties` gives lines of its configuration beside those of the
    local stack. One that is `short_lived` costs less in all, and a loaded one can do less."""

    def __init__(
        self,
        directory: Path,
        java_home: Path,
        *,
        heap: str = "512m",
        properties: Callable[[BrokerSpec], str] = lambda spec: "",
        short_lived: bool = True,
    ) -> None:
        ports = Ports(directory)
        self.spec = BrokerSpec(
            directory=directory / "broker",
            host=HOST,
            port=ports.choose("broker", HOST, 0, "stack.broker_port"),
            controller_port=ports.choose("controller", HOST, 0, ""),
            heap=heap,
            payload_bytes=1 << 20,
        )
        argv = prepare(self.spec, str(java_home / "bin" / "java"), jars.kafka_classpath())
        with self.spec.properties_file.open("a") as file:  # of a key that stands twice the last counts
            file.write(properties(self.spec))
        if short_lived:
            argv = [argv[0], *SHORT_LIVED, *(word for word in argv[1:] if "UseG1GC" not in word)]
        self._argv = argv
        self._log = directory / "broker.log"
        self.process: ManagedProcess

    @property
    def bootstrap(self) -> str:
        return self.spec.bootstrap

    def start(self) -> "Broker":
        """Raises NotReadyError if it does not answer."""
        self.process = ManagedProcess(self._argv, os.environ, self._log)
        answering = wait_until(lambda: self.process.ended() or answers(self.spec), START_S)
        if not answering or self.process.ended():
            self.kill()
            raise NotReadyError(f"the broker does not answer: {self._log.read_text()[-LOG_TAIL:]}")
        return self

    def signal(self, number: int) -> None:
        os.kill(self.process.identity.pid, number)

    def kill(self) -> None:
        self.process.kill()
        assert wait_until(self.process.ended, STOP_S)

    def stop(self) -> None:
        """Also one that stands still."""
        if not self.process.ended():
            self.signal(signal.SIGCONT)
        stop_all([self.process], STOP_S)
