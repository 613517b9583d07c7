"""Finds a JDK: a full one, of a version that Spark supports.

Spark uses the module `jdk.incubator.vector`, which full JDKs have and trimmed JREs lack.
"""

import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from glob import glob
from pathlib import Path
from typing import NamedTuple

from jobs.errors import JavaError

VERSIONS = (17, 21)
MODULE = "jdk.incubator.vector"
USUAL_PLACES = (
    "/usr/lib/jvm/*",
    "/usr/local/lib/jvm/*",
    "/opt/java/*",
    "/opt/*jdk*",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
    "/opt/homebrew/opt/openjdk@*/libexec/openjdk.jdk/Contents/Home",
    "~/.sdkman/candidates/java/*",
    "~/.jdks/*",
)
REMEDY = "install a full JDK 17 or 21 (on Debian `apt-get install openjdk-17-jdk-headless`), or set JAVA_HOME to one"

_BASE_MODULE = re.compile(r"^java\.base@(\d+)", re.MULTILINE)


class Java(NamedTuple):
    """A suitable JDK: its home directory and feature version; `found_by`: where it was found; `passed_over`: unsuitable
    ones found before it, each with the reason."""

    home: Path
    version: int
    found_by: str = ""
    passed_over: tuple[str, ...] = ()

    @property
    def command(self) -> str:
        return str(self.home / "bin" / "java")

    def __str__(self) -> str:
        return f"{self.version} in {self.home}" + (f", found by {self.found_by}" if self.found_by else "")

    @property
    def warning(self) -> str | None:
        """A warning if JAVA_HOME names another JDK, which cannot be used."""
        return next((reason for reason in self.passed_over if reason.startswith("JAVA_HOME")), None)


def find_java(environ: Mapping[str, str], places: tuple[str, ...] = USUAL_PLACES) -> Java:
    """The first suitable JDK: JAVA_HOME, then `java` on the PATH, then the usual directories.

    Raises JavaError that names what was found instead.
    """
    unfit: list[str] = []
    named = environ.get("JAVA_HOME")
    if named and not os.path.isfile(Path(named) / "bin" / "java"):
        unfit.append(f"JAVA_HOME is {named}, which has no bin/java")
    for home, found_by in _candidates(environ, places):
        java = check(home)
        if isinstance(java, Java):
            return java._replace(found_by=found_by, passed_over=tuple(unfit))
        unfit.append(f"JAVA_HOME: {java}" if found_by == "JAVA_HOME" else java)
    found = f"; found: {'; '.join(unfit)}" if unfit else ""
    raise JavaError(f"no full JDK of version 17 or 21 was found{found}: {REMEDY}")


def check(home: Path) -> Java | str:
    """The JDK at `home` if it is suitable, else what is wrong with it, in words. Calls `java --list-modules` once."""
    command = [str(home / "bin" / "java"), "--list-modules"]
    try:
        listing = subprocess.run(command, capture_output=True, text=True, timeout=30, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{home} does not start ({error})"
    base = _BASE_MODULE.search(listing.stdout)
    if listing.returncode or base is None:
        return f"{home} is older than Java 9, or is not Java"
    version = int(base[1])
    if version not in VERSIONS:
        return f"{home} is Java {version}"
    if f"{MODULE}@" not in listing.stdout:
        return f"{home} is Java {version} without the module {MODULE} (a trimmed JRE)"
    return Java(home, version)


def _candidates(environ: Mapping[str, str], places: tuple[str, ...]) -> Iterator[tuple[Path, str]]:
    """Home directories that contain a `java`, each once, and where each was found. Those that this user may not look
    into contain none (`Path.is_file` would raise PermissionError)."""
    seen: set[Path] = set()
    for command, found_by in _commands(environ, places):
        if os.path.isfile(command) and (real := command.resolve()) not in seen:
            seen.add(real)
            yield real.parent.parent, found_by


def _commands(environ: Mapping[str, str], places: tuple[str, ...]) -> Iterator[tuple[Path, str]]:
    if home := environ.get("JAVA_HOME"):
        yield Path(home) / "bin" / "java", "JAVA_HOME"
    for directory in environ.get("PATH", "").split(":"):
        if directory:
            yield Path(directory) / "java", "PATH"
    for pattern in places:
        for home in sorted(glob(str(Path(pattern).expanduser()))):
            yield Path(home) / "bin" / "java", f"looking in {pattern}"
