"""What goes with a submission: Waystation's own packages in a zip, the configuration, and the file that is started.

A bundle is a directory named by its content, and never changes: a driver goes on importing from it while later versions
are submitted beside.
"""

import hashlib
import os
import shutil
from collections.abc import Iterator, Sequence
from importlib import metadata, resources
from importlib.resources.abc import Traversable
from pathlib import Path
from tempfile import mkdtemp
from typing import NamedTuple
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

PACKAGES = ("schemas", "pipelines", "jobs", "conf")
"""What drivers and executors run. Gateways are no Spark application."""
LEFT_OUT = ("__pycache__",)
EARLIEST = (1980, 1, 1, 0, 0, 0)
"""The time of all files in the zip: the same packages make the same one, whenever."""


class Bundle(NamedTuple):
    """Files of one submission. `packages` is on the path of drivers and executors as it is."""

    packages: Path
    launcher: Path
    configuration: tuple[Path, ...]


def make_bundle(configuration: Sequence[Path], cache: Path) -> Bundle:
    """The bundle for this version and these configuration files, under `cache`; nobody else can read it."""
    parent = cache / "submissions"
    parent.mkdir(parents=True, exist_ok=True)
    beside = Path(mkdtemp(dir=parent, prefix=".new-"))
    try:
        bundle = _fill(beside, configuration)
        digest = hashlib.sha256()
        for file in (bundle.packages, bundle.launcher, *bundle.configuration):
            digest.update(f"{file.name}\0{file.stat().st_size}\0".encode() + file.read_bytes())
        directory = parent / digest.hexdigest()[:16]
        if directory.exists():
            os.utime(directory)  # used again: maintenance goes by it
        else:
            beside.rename(directory)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return Bundle(
        directory / bundle.packages.name,
        directory / bundle.launcher.name,
        tuple(directory / file.name for file in bundle.configuration),
    )


def _fill(directory: Path, configuration: Sequence[Path]) -> Bundle:
    packages = _zip_packages(directory)
    launcher = directory / "launch.py"
    launcher.write_bytes(resources.files("jobs").joinpath("cluster", "launch.py").read_bytes())
    copies = [directory / f"{number}-{path.name}" for number, path in enumerate(configuration)]
    for path, copy in zip(configuration, copies, strict=True):
        copy.write_bytes(path.read_bytes())
        copy.chmod(0o600)
    return Bundle(packages, launcher, tuple(copies))


def _zip_packages(directory: Path) -> Path:
    """:data:`PACKAGES` and what tells their version, from what is installed here, whether from a checkout or not."""
    version = metadata.version("waystation")
    path = directory / f"waystation-{version}.zip"
    with ZipFile(path, "w") as file:
        for package in PACKAGES:
            for name, content in _files(resources.files(package), package):
                file.writestr(ZipInfo(name, EARLIEST), content, ZIP_DEFLATED)
        described = f"Metadata-Version: 2.1\nName: waystation\nVersion: {version}\n"
        file.writestr(ZipInfo(f"waystation-{version}.dist-info/METADATA", EARLIEST), described)
    return path


def _files(directory: Traversable, path: str) -> Iterator[tuple[str, bytes]]:
    for entry in sorted(directory.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir():
            if entry.name not in LEFT_OUT:
                yield from _files(entry, f"{path}/{entry.name}")
        else:
            yield f"{path}/{entry.name}", entry.read_bytes()
