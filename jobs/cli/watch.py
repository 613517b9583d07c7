"""A view that is refreshed until Ctrl-C, as `status --watch` shows it."""

import signal
import sys
import time
from collections.abc import Callable
from threading import Event
from typing import TypeVar

from jobs.cli.context import output
from jobs.runtime.signals import set_on_signals
from schemas.errors import WaystationError

Found = TypeVar("Found")


def watch(read: Callable[[], Found], show: Callable[[Found], None], interval_s: float, clear: bool = True) -> None:
    """Read and show every `interval_s` seconds until SIGINT or SIGTERM, which end it quietly.

    On a terminal each view replaces the previous one, if `clear`. The first error is raised; later ones are shown
    instead of the view, and it goes on, because a stack may be restarted meanwhile.
    """
    stopped = Event()
    set_on_signals(stopped, signal.SIGINT, signal.SIGTERM)
    found = read()
    while True:
        _begin(interval_s, clear)
        show(found)
        sys.stdout.flush()
        while True:
            if stopped.wait(interval_s):
                return
            try:
                found = read()
                break
            except WaystationError as error:
                _begin(interval_s, clear)
                output().print(str(error), markup=False)


def _begin(interval_s: float, clear: bool) -> None:
    terminal = output()
    if clear and terminal.is_terminal:
        terminal.clear()
        terminal.print(f"{time.strftime('%H:%M:%S')}, refreshed every {interval_s:g} s; Ctrl-C to quit", style="dim")
