"""Files that go with a submission: Waystation's packages as a wheel, the configuration, and the file to start.

A bundle is a directory named by a hash of its content, and never changes: a driver goes on importing from it while
later versions are submitted.
"""

import hashlib
import os
import shutil
from collections.abc import Iterator, Sequence
from importlib import metadata, resources
from importlib.resources.abc import Traversable
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, NamedTuple
from zipfile import ZIP_DEFLATED, ZipInfo

from wheel.wheelfile import WheelFile

PACKAGES = ("schemas", "pipelines", "jobs", "conf")
"""The code that drivers and executors run. Gateways are not Spark applications."""
LEFT_OUT = ("__pycache__",)
EARLIEST = (1980, 1, 1, 0, 0, 0)
"""The time of all files in a wheel, so that the same packages always yield the same wheel."""

_WHEEL = "Wheel-Version: 1.0\nGenerator: waystation\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


class Bundle(NamedTuple):
    """Files of one submission. `packages` is a wheel renamed to `.zip`, the suffix that Spark requires for Python
    packages."""

    packages: Path
    launcher: Path
    configuration: tuple[Path, ...]


class _Timeless(WheelFile):  # type: ignore[misc]
    """A wheel whose files, including those that :class:`WheelFile` adds, all have the same time."""

    def writestr(self, name: str, content: Any, compress_type: int | None = ZIP_DEFLATED) -> None:
        entry = ZipInfo(name, EARLIEST)
        entry.external_attr = 0o644 << 16
        super().writestr(entry, content, compress_type)


def make_bundle(configuration: Sequence[Path], cache: Path) -> Bundle:
    """The bundle for this version and these configuration files, under `cache`; only the owner can read it."""
    parent = cache / "submissions"
    parent.mkdir(parents=True, exist_ok=True)
    staged = Path(mkdtemp(dir=parent, prefix=".new-"))
    try:
        bundle = _fill(staged, configuration)
        digest = hashlib.sha256()
        for file in (bundle.packages, bundle.launcher, *bundle.configuration):
            digest.update(f"{file.name}\0{file.stat().st_size}\0".encode() + file.read_bytes())
        directory = parent / digest.hexdigest()[:16]
        if directory.exists():
            os.utime(directory)  # maintenance needs the time of the last use
        else:
            staged.rename(directory)
    finally:
        shutil.rmtree(staged, ignore_errors=True)
    return Bundle(
        directory / bundle.packages.name,
        directory / bundle.launcher.name,
        tuple(directory / file.name for file in bundle.configuration),
    )


def _fill(directory: Path, configuration: Sequence[Path]) -> Bundle:
    wheel = build_wheel(directory)
    launcher = directory / "launch.py"
    launcher.write_bytes(resources.files("jobs").joinpath("cluster", "launch.py").read_bytes())
    copies = [directory / f"{number}-{path.name}" for number, path in enumerate(configuration)]
    for path, copy in zip(configuration, copies, strict=True):
        copy.write_bytes(path.read_bytes())
        copy.chmod(0o600)
    return Bundle(wheel.rename(wheel.with_suffix(".zip")), launcher, tuple(copies))


def build_wheel(directory: Path) -> Path:
    """A wheel of :data:`PACKAGES` in `directory`, built from what is installed here, from a checkout or not."""
    version = metadata.version("waystation")
    wheel, information = directory / f"waystation-{version}-py3-none-any.whl", f"waystation-{version}.dist-info"
    with _Timeless(wheel, "w") as file:
        for package in PACKAGES:
            for name, content in _files(resources.files(package), package):
                file.writestr(name, content)
        file.writestr(f"{information}/METADATA", f"Metadata-Version: 2.1\nName: waystation\nVersion: {version}\n")
        file.writestr(f"{information}/WHEEL", _WHEEL)
    return wheel


def _files(directory: Traversable, path: str) -> Iterator[tuple[str, bytes]]:
    for entry in sorted(directory.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir():
            if entry.name not in LEFT_OUT:
                yield from _files(entry, f"{path}/{entry.name}")
        else:
            yield f"{path}/{entry.name}", entry.read_bytes()
