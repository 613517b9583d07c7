"""A broker for measurements, on free ports, gone afterwards."""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp

from harness.processes import Broker
from jobs.stack.java import find_java


@contextmanager
def running_broker(environ: Mapping[str, str]) -> Iterator[str]:
    """Yields the bootstrap address."""
    data = Path(mkdtemp(prefix="waystation-bench-broker-"))
    broker = Broker(data, find_java(environ).home, short_lived=False).start()
    try:
        yield broker.bootstrap
    finally:
        broker.stop()
        shutil.rmtree(data, ignore_errors=True)
