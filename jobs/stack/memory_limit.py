"""How much memory is available to new processes, also in a container with less memory than its machine."""

import re
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")
"""Location of control groups: version 2, and the directory `memory` of version 1."""
FILES = (
    ("memory.max", "memory.current", "memory.stat"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat"),
)
_PAGE_CACHE = re.compile(r"^(?:total_)?inactive_file (\d+)$", re.MULTILINE)


def available_bytes(of_machine: int, cgroup: Path = CGROUP) -> int:
    """The smaller of the machine's available memory and what this container's limit leaves. Unused page cache counts as
    used in the container, although it is freed on demand."""
    for limit, used, details in FILES:
        try:
            left = int((cgroup / limit).read_text()) - int((cgroup / used).read_text())
            found = _PAGE_CACHE.findall((cgroup / details).read_text())
        except (OSError, ValueError):  # no such file, or no limit: "max"
            continue
        return max(0, min(of_machine, left + max(map(int, found), default=0)))
    return of_machine
