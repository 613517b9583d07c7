"""Disks for tests: one whose power can fail, so that what was not synced is gone, and one that is soon full.

The first is a file system of its own, ext4 in a file. A cut is its shutdown without writing anything back
(`EXT4_IOC_SHUTDOWN` with EXT4_GOING_FLAGS_NOLOGFLUSH): what a disk has when the power fails.
"""

import fcntl
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

SHUTDOWN = 0x8004587D
WITHOUT_LOG = 2
SIZE = 64 << 20

needs_disk = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0 or not Path("/dev/loop-control").exists(),
    reason="only root of Linux can mount a file system in a file, and containers often cannot",
)


needs_small_disk = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="only root of Linux can mount a file system"
)


class Disk:
    """A file system in a file, mounted on a directory."""

    def __init__(self, directory: Path) -> None:
        self._image = directory / "disk.ext4"
        self.directory = directory / "disk"
        self.directory.mkdir()
        with self._image.open("wb") as image:
            image.truncate(SIZE)
        subprocess.run(["mkfs.ext4", "-q", "-F", str(self._image)], check=True)
        self.mount()

    def mount(self) -> None:
        subprocess.run(["mount", "-o", "loop", str(self._image), str(self.directory)], check=True)

    def unmount(self) -> None:
        subprocess.run(["umount", str(self.directory)], check=True)

    def cut(self) -> None:
        """The power fails: nothing more is written."""
        root = os.open(self.directory, os.O_RDONLY)
        try:
            fcntl.ioctl(root, SHUTDOWN, struct.pack("I", WITHOUT_LOG))
        finally:
            os.close(root)


@contextmanager
def mounted(directory: Path) -> Iterator[Disk]:
    """A new disk below the directory."""
    disk = Disk(directory)
    try:
        yield disk
    finally:
        disk.unmount()


class SmallDisk:
    """A file system in memory, mounted on a directory."""

    def __init__(self, directory: Path, size: int) -> None:
        self.directory = directory / "small"
        self.directory.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(self.directory)], check=True)

    @property
    def _filler(self) -> Path:
        return self.directory / "filler"

    def fill(self) -> None:
        """No file can grow beyond its last block, and none can get its first byte."""
        free = os.statvfs(self.directory)
        with self._filler.open("ab") as filler:
            filler.write(bytes(free.f_bavail * free.f_frsize))

    def free(self) -> None:
        self._filler.unlink()

    def unmount(self) -> None:
        subprocess.run(["umount", str(self.directory)], check=True)


@contextmanager
def small(directory: Path, size: int) -> Iterator[SmallDisk]:
    """A new disk of `size` bytes below the directory."""
    disk = SmallDisk(directory, size)
    try:
        yield disk
    finally:
        disk.unmount()
