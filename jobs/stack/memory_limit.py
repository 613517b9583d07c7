"""How much memory there is for new processes, also where a container has less than its machine."""

import re
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")
"""Where control groups are: of version 2, and the directory `memory` of version 1."""
FILES = (
    ("memory.max", "memory.current", "memory.stat"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat"),
)
_PAGE_CACHE = re.compile(r"^(?:total_)?inactive_file (\d+)$", re.MULTILINE)


def available_bytes(of_machine: int, cgroup: Path = CGROUP) -> int:
    """The least of what the machine has available, and what the limit of this container leaves. Pages of files that
    nobody uses count as used there, and are given back when memory is asked for."""
    for limit, used, details in FILES:
        try:
            left = int((cgroup / limit).read_text()) - int((cgroup / used).read_text())
            found = _PAGE_CACHE.findall((cgroup / details).read_text())
        except (OSError, ValueError):  # there is no such file, or no limit: "max"
            continue
        return max(0, min(of_machine, left + max(map(int, found), default=0)))
    return of_machine
