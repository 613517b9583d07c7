"""What a file system has to be asked for beyond writing, so that it outlives a power cut."""

import os
from pathlib import Path


def sync_directory(folder: Path) -> None:
    """Makes the names in a folder durable. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
