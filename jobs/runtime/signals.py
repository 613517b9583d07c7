"""Ends an application by signals."""

import signal
from threading import Event, Thread


def set_on_signals(event: Event, *numbers: signal.Signals) -> None:
    """Make each of the signals set `event`; for the main thread only.

    A thread sets it: a handler interrupts the main thread, which may be holding the event's lock.
    """
    for number in numbers:
        signal.signal(number, lambda *_: Thread(target=event.set, daemon=True).start())


def interrupt_on_signals(*numbers: signal.Signals) -> None:
    """Make each of the signals raise KeyboardInterrupt, like Ctrl-C, so that everything started is stopped."""
    for number in numbers:
        signal.signal(number, signal.default_int_handler)
