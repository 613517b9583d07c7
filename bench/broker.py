"""A broker for measurements, on free ports, gone afterwards."""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp

from jobs.stack import jars
from jobs.stack.broker import BrokerSpec, answers, prepare
from jobs.stack.java import find_java
from jobs.stack.ports import Ports
from jobs.stack.process import ManagedProcess, stop_all, wait_until

HOST = "127.0.0.1"


@contextmanager
def running_broker(environ: Mapping[str, str]) -> Iterator[str]:
    """Yields the bootstrap address."""
    data = Path(mkdtemp(prefix="waystation-bench-broker-"))
    ports = Ports(data)
    broker, controller = ports.choose("broker", HOST, 0, ""), ports.choose("controller", HOST, 0, "")
    spec = BrokerSpec(data / "broker", HOST, broker, controller, "512m", 1 << 20)
    java = find_java(environ).home / "bin" / "java"
    process = ManagedProcess(prepare(spec, str(java), jars.kafka_classpath()), environ, data / "broker.log")
    try:
        if not wait_until(lambda: answers(spec), 60):
            raise RuntimeError((data / "broker.log").read_text()[-2000:])
        yield spec.bootstrap
    finally:
        stop_all([process], 20)
        shutil.rmtree(data, ignore_errors=True)
