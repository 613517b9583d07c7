"""A log is bounded while a process writes to it, and nothing is lost."""

import subprocess
import sys
from pathlib import Path

from jobs.stack import log_rotation
from jobs.stack.log_rotation import Limits, rotate

ROTATIONS = 20
WRITER = """
import itertools, os, sys
log_file, stop_file = sys.argv[1:]
with open(log_file, "ab", buffering=0) as log:
    for number in itertools.count():
        log.write(b"line %d of the log, and what it says\\n" % number)
        if number % 1_000 == 0 and os.path.exists(stop_file):
            break
print(number + 1)
"""


def content(log: Path, files: int) -> str:
    names = [log.with_name(f"{log.name}.{number}") for number in range(files, 0, -1)]
    return "".join(path.read_text() for path in (*names, log) if path.exists())


def test_nothing_is_lost_while_a_process_writes(tmp_path: Path) -> None:
    """Where the file system can take the head of a file away; where not, the lines that are there are in order."""
    log = tmp_path / "part.log"
    log.write_bytes(b"x" * 8192)
    with log.open("r+b") as file:
        in_one_step = log_rotation._collapse(file.fileno(), 4096)
    log.write_bytes(b"")
    stop, limits = tmp_path / "stop", Limits(16_384, 1_000)
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(log), str(stop)], stdout=subprocess.PIPE, text=True
    ) as writer:
        try:
            rotations = 0
            while rotations < ROTATIONS and writer.poll() is None:
                rotations += rotate(log, limits)
        finally:
            stop.touch()
        lines = int(writer.communicate()[0])
    whole = [line for line in content(log, 1_000).splitlines() if line.startswith("line ") and line.endswith(" says")]
    numbers = list(dict.fromkeys(int(line.split()[1]) for line in whole))
    assert numbers == sorted(numbers)
    if in_one_step:
        assert numbers == list(range(lines))
