"""The load of this process: processor time and memory. Taken at each heartbeat, so each figure is cheap to get."""

import time
from collections import deque
from pathlib import Path

import psutil

from schemas.members import GatewayLoad

WINDOW_S = 2.0
"""Processor time is averaged over this long: shorter, the order of gateways would follow every burst."""

_CGROUP_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


class CpuShare:
    """Processor time as a share of one core, over the last `window_s` seconds. Pure: times come in."""

    def __init__(self, window_s: float = WINDOW_S) -> None:
        self._window_s = window_s
        self._samples: deque[tuple[float, float]] = deque()

    def update(self, now: float, cpu_s: float) -> float:
        """The share up to `now`, monotonic seconds; `cpu_s` is the processor time used so far. 0 at first."""
        samples = self._samples
        samples.append((now, cpu_s))
        while len(samples) > 2 and samples[1][0] <= now - self._window_s:
            samples.popleft()
        began, used = samples[0]
        return max(0.0, cpu_s - used) / (now - began) if now > began else 0.0


class ProcessLoad:
    """Measures this process."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._has_bytes = memory_limit(psutil.virtual_memory().total)
        self._cpu = CpuShare()

    def measure(self, connections: int) -> GatewayLoad:
        """The load with so many open connections of clients."""
        resident = int(self._process.memory_info().rss)
        cpu = self._cpu.update(time.monotonic(), time.process_time())
        memory = min(1.0, resident / self._has_bytes)
        return GatewayLoad(connections=connections, cpu=round(cpu, 4), memory_bytes=resident, memory=round(memory, 4))


def memory_limit(of_machine: int, files: tuple[Path, ...] = _CGROUP_LIMITS) -> int:
    """Bytes of memory that the process may use: the machine's, or fewer in a container with a limit."""
    for file in files:
        try:
            limit = int(file.read_text())
        except (OSError, ValueError):  # no such file, or no limit: "max"
            continue
        return max(1, min(of_machine, limit))
    return of_machine
