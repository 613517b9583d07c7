"""`python -m tests.fuzz`: fuzzes what the gateway reads; exit status 1 and a file if something was found.

    python -m tests.fuzz --target codec|connection|host|all --executions 10_000_000 --seconds 600 --merge

Each target runs in a process of its own (:mod:`tests.fuzz.worker`), from the committed corpus
(:mod:`tests.fuzz.corpus`) and from what earlier runs kept (`build/fuzz/TARGET`). Inputs that break a promise are left
in `build/fuzz/findings`; with `--target TARGET`, `--replay FILE` shows what such a file breaks, and `--add FILE` takes
it into the corpus. `--merge` takes in what reaches more, and drops what reaches nothing that others do not.
"""

import argparse
import logging
import re
import shutil
import subprocess
import sys
import time
from collections import deque
from pathlib import Path
from typing import NamedTuple

import structlog

from tests.fuzz import corpus
from tests.fuzz.targets import TARGETS

BUILD = Path("build/fuzz")
FINDINGS = BUILD / "findings"
PROGRESS_S = 10.0
INPUT_TIMEOUT_S = 20
RSS_LIMIT_MB = 1_024
INTERRUPTED = 72
"""Exit status of libFuzzer when it is told to stop (SIGINT)."""

_COUNT = re.compile(r"^#(\d+)\s")
_UNITS = re.compile(r"^stat::number_of_executed_units:\s*(\d+)")


class Ran(NamedTuple):
    """`tail`: the last lines of a run that found something, else empty."""

    target: str
    executions: int
    seconds: float
    tail: list[str]


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def worker(name: str, seed: int, *options: str) -> subprocess.Popen[str]:
    """The process that fuzzes a target; it speaks on its standard output."""
    command = [sys.executable, "-m", "tests.fuzz.worker", name, str(seed), *options]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", bufsize=1
    )


def fuzz(name: str, executions: int, seconds: int, seed: int) -> Ran:
    """Runs one target until it has had its executions or its time, or has found something."""
    kept, begun_with = BUILD / name, BUILD / "corpus" / name
    shutil.rmtree(begun_with, ignore_errors=True)
    corpus.unpack(name, begun_with)
    for directory in (kept, FINDINGS):
        directory.mkdir(parents=True, exist_ok=True)
    options = [f"-runs={executions}", "-print_final_stats=1", f"-artifact_prefix={FINDINGS}/{name}-"]
    options += [f"-timeout={INPUT_TIMEOUT_S}", f"-rss_limit_mb={RSS_LIMIT_MB}"]
    if seconds:
        options.append(f"-max_total_time={seconds}")
    started = shown = time.monotonic()
    process = worker(name, seed, *options, str(kept), str(begun_with))
    tail: deque[str] = deque(maxlen=60)
    done = 0
    assert process.stdout is not None
    for line in process.stdout:
        tail.append(line.rstrip())
        if found := _COUNT.match(line) or _UNITS.match(line):
            done = max(done, int(found[1]))
        if time.monotonic() - shown >= PROGRESS_S:
            shown = time.monotonic()
            say(f"{name}: {done:,} of {executions:,} executions, {done / (shown - started):,.0f}/s")
    broken = process.wait() not in (0, INTERRUPTED)
    return Ran(name, done, time.monotonic() - started, list(tail) if broken else [])


def replay(name: str, file: Path) -> None:
    """Runs one input; what does not hold is raised, with its traceback."""
    TARGETS[name].run(file.read_bytes())
    say(f"{file}: nothing found")


def merge(name: str) -> None:
    """Packs what reaches something, of the corpus and of what earlier runs kept."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    found = [path.read_bytes() for path in (BUILD / name).glob("*")]
    packed = corpus.write(name, corpus.minimised(name, TARGETS[name].run, found))
    say(f"{name}: the corpus has {packed} inputs beside its seeds")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="fuzzes what the gateway reads")
    parser.add_argument("--target", choices=[*TARGETS, "all"], default="all")
    parser.add_argument("--executions", type=int, default=100_000, help="over all targets together")
    parser.add_argument("--seconds", type=int, default=0, help="at most so long a target; 0: no limit")
    parser.add_argument("--seed", type=int, default=int(time.time()) % 1_000_000)
    parser.add_argument("--merge", action="store_true", help="take new inputs into the corpus, instead of fuzzing")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="run one input, instead of fuzzing")
    parser.add_argument("--add", type=Path, metavar="FILE", help="take one input into the corpus, instead of fuzzing")
    arguments = parser.parse_args()
    names = list(TARGETS) if arguments.target == "all" else [arguments.target]
    if len(names) > 1 and (arguments.replay or arguments.add):
        parser.error("a file is of one target: say which with --target")
    if arguments.add is not None:
        corpus.add(names[0], arguments.add.read_bytes())
        return 0
    if arguments.replay is not None:
        replay(names[0], arguments.replay)
        return 0
    if arguments.merge:
        for name in names:
            merge(name)
        return 0
    shares = sum(TARGETS[name].share for name in names)
    results = []
    for name in names:
        wanted = round(arguments.executions * TARGETS[name].share / shares)
        results.append(fuzz(name, wanted, arguments.seconds, arguments.seed))
    for ran in results:
        if ran.tail:
            say("\n".join(ran.tail))
    total = sum(ran.executions for ran in results)
    each = ", ".join(f"{ran.target} {ran.executions:,} ({ran.executions / ran.seconds:,.0f}/s)" for ran in results)
    broken = [ran.target for ran in results if ran.tail]
    verdict = f"FOUND something in {', '.join(broken)}: see {FINDINGS}" if broken else "nothing found"
    say(f"fuzzing, seed {arguments.seed}: {total:,} executions: {each}: {verdict}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
