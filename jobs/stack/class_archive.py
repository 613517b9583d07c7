"""An archive of Spark's classes, which JVMs map into memory instead of reading and verifying 15,000 classes each.

(Class data sharing, JEP 350.) It belongs to one JDK and one set of jars at fixed paths; a JVM that it does not fit
starts without it. A JVM that does a little of what the applications do (:mod:`jobs.stack.class_training`) creates it
once, as `<cache>/classes/<hash>.jsa`.

Run as a module (`python -m jobs.stack.class_archive`), it creates the archive if it is missing.
"""

import hashlib
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from tempfile import mkdtemp
from threading import Event

from jobs.stack.jars import Progress, cache_directory, jars_directory, locked, pyspark_jars, resolve, say
from jobs.stack.java import find_java
from jobs.stack.process import IDLE, ManagedProcess, wait_until
from schemas.errors import WaystationError

KEPT = 4
"""How many archives are kept, the last used ones: other checkouts, JDKs and versions have their own. Each takes 200
MB."""
TRAINING = "jobs.stack.class_training"
TIMEOUT_S = 600
IDLE_TIMEOUT_S = 6 * 3600
"""The same for a JVM that gets only processor time that nobody else wants."""
AFTER_S = 300.0
"""How long after its start a stack creates the archive: by then the other JVMs have compiled what they need, and a demo
is over."""
KILL_TIMEOUT_S = 10
QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off"
"""Keeps the log free of messages about archives that do not fit, or classes that cannot be archived."""


def class_archive(java_home: Path, environ: Mapping[str, str]) -> Path:
    """The path of the archive for this JDK and the present jars, whether it exists or not."""
    release, jars = java_home / "release", pyspark_jars()
    identity = (
        str(java_home.resolve()),
        release.read_text() if release.is_file() else "",
        str(jars),
        str(jars.stat().st_mtime_ns),
        metadata.version("pyspark"),
        str(jars_directory(environ)),
    )
    digest = hashlib.sha256("\0".join(identity).encode()).hexdigest()[:16]
    return cache_directory(environ) / "classes" / f"{digest}.jsa"


def archive_options(environ: Mapping[str, str] = os.environ) -> str:
    """Options for Spark's JVM, that of `JAVA_HOME`; none if there is no archive for it."""
    home = environ.get("JAVA_HOME")
    archive = class_archive(Path(home), environ) if home else None
    if archive is None or not os.path.isfile(archive):
        return ""
    os.utime(archive)  # the last used ones are kept
    return f'-XX:SharedArchiveFile="{archive}" {QUIET}'


def make_archive_later(environ: Mapping[str, str], stopping: Event) -> None:
    """Create the archive if it is missing, `AFTER_S` from now, with processor time that nothing else wants.

    If it cannot be created, its log in the cache says why. Ends soon after `stopping` is set."""
    if not stopping.wait(AFTER_S):
        with suppress(WaystationError, OSError):
            make_archive(environ, lambda _: None, stopping.is_set, niceness=IDLE)


def make_archive(
    environ: Mapping[str, str],
    progress: Progress,
    stopping: Callable[[], bool] = lambda: False,
    again: bool = False,
    niceness: int = 0,
) -> bool:
    """Create the archive if it is missing, one process at a time; returns whether it exists. Resolves the jars first.

    A failure is reported, and retried only if `again`: without the archive Spark just starts more slowly. `niceness` as
    in :meth:`jobs.stack.process.ManagedProcess.set_niceness`. Raises JavaError if there is no JDK, JarsError.
    """
    java = find_java(environ)
    resolve(environ, progress)
    archive = class_archive(java.home, environ)
    failed = archive.with_suffix(".log")
    if archive.is_file() or (failed.is_file() and not again):
        return archive.is_file()
    archive.parent.mkdir(parents=True, exist_ok=True)
    with locked(archive.parent / "lock", progress, "is creating the class archive"):
        if not archive.is_file():
            progress("creating the class archive once, so that Spark starts faster; this takes about a minute")
            environ = {**environ, "JAVA_HOME": str(java.home)}
            if not _train(archive, failed, environ, stopping, niceness) and not stopping():
                progress(
                    f"the class archive could not be created: Spark starts without it, but more slowly; read {failed}"
                )
        archives = sorted(archive.parent.glob("*.jsa"), key=lambda file: file.stat().st_mtime)
        for old in archives[:-KEPT]:
            old.unlink()  # a JVM that has mapped it can go on using it
    return archive.is_file()


def _train(
    archive: Path, failed: Path, environ: Mapping[str, str], stopping: Callable[[], bool], niceness: int
) -> bool:
    """Whether the archive was created. If not, `failed` has the output of the attempt."""
    for left_by_a_killed_one in archive.parent.glob(".new-*/"):
        shutil.rmtree(left_by_a_killed_one, ignore_errors=True)
    directory = Path(mkdtemp(dir=archive.parent, prefix=".new-"))
    made, log_file = directory / archive.name, directory / failed.name
    process = ManagedProcess([sys.executable, "-m", TRAINING, str(made)], environ, log_file)
    timeout_s = IDLE_TIMEOUT_S if niceness == IDLE else TIMEOUT_S
    try:
        process.set_niceness(niceness)
        wait_until(lambda: process.ended() or stopping(), timeout_s)
        if process.exit_code == 0 and made.is_file():
            with made.open("rb") as file:  # half an archive, after a power failure, would crash JVMs
                os.fsync(file.fileno())
            made.rename(archive)
            failed.unlink(missing_ok=True)
            return True
        if not stopping():
            why = f"it took more than {timeout_s} s" if process.exit_code is None else f"status {process.exit_code}"
            with log_file.open("a") as record:
                record.write(f"no class archive: {why}\n")
            log_file.rename(failed)
        return False
    finally:
        process.kill()  # also kills the JVM that it started
        wait_until(process.ended, KILL_TIMEOUT_S)
        shutil.rmtree(directory, ignore_errors=True)


def main() -> int:
    """Resolve the jars and create the archive, if they are missing; failing to create the archive is no error."""
    try:
        make_archive(os.environ, say, again=True)
    except WaystationError as error:
        say(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
