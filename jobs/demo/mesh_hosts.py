"""The processes with the agents of the mesh's demo: one for each airport, and a few that share the aircraft."""

import selectors
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from jobs.demo.children import wait_or_kill
from jobs.demo.errors import DemoError
from jobs.demo.mesh_agents import MeshFiles
from jobs.demo.mesh_host import Ready
from jobs.demo.mesh_plan import MeshPlan

AIRCRAFT_IN_A_PROCESS: Final = 10
START_S: Final = 90.0
STOP_S: Final = 10.0
_TAIL: Final = 2_000


def groups(plan: MeshPlan) -> list[list[str]]:
    """Which agents share a process."""
    count = -(-len(plan.aircraft) // AIRCRAFT_IN_A_PROCESS)
    return [*([place] for place in plan.airports), *(plan.aircraft[number::count] for number in range(count))]


@contextmanager
def running(plan: MeshPlan, files: MeshFiles, logs: Path, environ: Mapping[str, str]) -> Iterator["Hosts"]:
    """The processes, started. They are stopped at the end, whatever happens."""
    logs.mkdir(parents=True, exist_ok=True)
    hosts = Hosts(logs)
    try:
        for number, places in enumerate(groups(plan)):
            hosts.start(f"agents-{number}", [files.settings(place) for place in places], environ)
        yield hosts
    finally:
        hosts.stop()


class Hosts:
    """`logs`: the directory of their logs."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, settings: Sequence[Path], environ: Mapping[str, str]) -> None:
        """One process, in a group of its own: Ctrl-C is for the demo, which then stops it."""
        with self._log(name).open("ab") as log:
            self._children[name] = subprocess.Popen(
                [sys.executable, "-m", "jobs.demo.mesh_host", *map(str, settings)],
                env=dict(environ),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                process_group=0,
            )

    def ports(self) -> dict[str, int]:
        """The mesh's ports by client id, once all agents run. Raises DemoError."""
        found: dict[str, int] = {}
        deadline = time.monotonic() + START_S
        with selectors.DefaultSelector() as selector:
            for name, child in self._children.items():
                assert child.stdout is not None
                selector.register(child.stdout, selectors.EVENT_READ, (name, child.stdout))
            while selector.get_map():
                ready = selector.select(max(0.0, deadline - time.monotonic()))
                if not ready:
                    raise DemoError(f"the agents are not ready after {START_S:.0f} s: read the logs in {self._logs}")
                for key, _ in ready:
                    name, stream = key.data
                    line = stream.readline()
                    if not line:
                        raise self._ended(name)
                    found |= msgspec.json.decode(line, type=Ready).ports
                    selector.unregister(stream)
        return found

    def check(self) -> None:
        """Raises DemoError if a process has ended."""
        for name, child in self._children.items():
            if child.poll() is not None:
                raise self._ended(name)

    def stop(self) -> None:
        """Ends all, by the end of their input, or by force."""
        for child in self._children.values():
            assert child.stdin is not None
            child.stdin.close()
        wait_or_kill(self._children.values(), STOP_S)
        for child in self._children.values():
            assert child.stdout is not None
            child.stdout.close()
        self._children.clear()

    def _log(self, name: str) -> Path:
        return self._logs / f"{name}.log"

    def _ended(self, name: str) -> DemoError:
        tail = self._log(name).read_text(encoding="utf-8", errors="replace").strip()[-_TAIL:]
        return DemoError(f"a process with agents has ended, see {self._log(name)}: {tail}")
