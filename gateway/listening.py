"""Errors of listeners for people: which setting gives the address that cannot be used, why, and what to do."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from types import MappingProxyType
from typing import Final

from schemas.errors import SettingsError

_ADVICE: Final = MappingProxyType(
    {
        errno.EADDRINUSE: "stop the program that uses it, or choose another port",
        errno.EACCES: "choose a port above 1023, or let this user open lower ones",
    }
)


@contextmanager
def listening(setting: str, host: str, port: int) -> Iterator[None]:
    """Around what opens a listener on `port`, which is that of `setting`. Raises SettingsError for an address that
    cannot be used."""
    try:
        yield
    except OSError as error:
        number = error.errno or 0
        why = os.strerror(number) if number > 0 else error.strerror or str(error)  # below 0: of the name's resolution
        advice = _ADVICE.get(number, f"write an address of this machine instead of {host}")
        raise SettingsError(f"cannot listen on {host}, {setting} = {port}: {why}; {advice}") from error
