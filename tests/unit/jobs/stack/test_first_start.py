"""A stack that finds no space for its first start says so, and what to do."""

import errno
import os
import threading
from pathlib import Path
from typing import NoReturn, cast

import pytest

from jobs.errors import StackError
from jobs.stack import local
from jobs.stack.local import Console
from jobs.stack.supervisor import Supervisor


class Full:
    """A supervisor whose first part finds a full disk, or another error."""

    def __init__(self, number: int = errno.ENOSPC) -> None:
        self._number = number
        self.is_stopped = False

    def tick(self) -> NoReturn:
        raise OSError(self._number, os.strerror(self._number))

    def stop(self) -> None:
        self.is_stopped = True


def run(data: Path, made: Full | OSError) -> None:
    def make() -> Supervisor:
        if isinstance(made, OSError):
            raise made
        return cast(Supervisor, made)

    quiet = Console(lambda _: None, lambda _: None, lambda *_: None)
    local.run(data, 1.0, make, threading.Event(), quiet)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_before_the_first_start(tmp_path: Path, number: int) -> None:
    with pytest.raises(StackError) as raised:
        run(tmp_path, OSError(number, os.strerror(number), "/data/kafka.properties"))
    assert str(raised.value) == (
        f"cannot write /data/kafka.properties: {os.strerror(number)}; free some space, or choose a data directory on "
        f"another disk than {tmp_path} with --data"
    )


def test_a_full_disk_at_the_first_start_of_a_part(tmp_path: Path) -> None:
    supervisor = Full()
    with pytest.raises(StackError, match="cannot write what the stack needs: No space left on device; free some space"):
        run(tmp_path, supervisor)
    assert supervisor.is_stopped


def test_other_errors_stay_what_they_are(tmp_path: Path) -> None:
    """Such as that of a closed terminal."""
    with pytest.raises(BrokenPipeError):
        run(tmp_path, Full(errno.EPIPE))
