"""The fields of the mesh's formats: big-endian integers, and byte strings with a length before them.

:class:`Reader` reads bytes of a peer: whatever they are, it raises FormatError and nothing else. The writing functions
raise FormatError for values that do not fit, because these come from applications and settings.
"""

from typing import Final
from uuid import UUID

from bundles.errors import FormatError

ID_BYTES: Final = 16
"""The size of a message id, a UUID."""
NAME_BYTES_MAX: Final = 255
"""The most bytes of an agent's name."""


class Reader:
    """A cursor over `data`."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, size: int) -> bytes:
        """The next `size` bytes."""
        stop = self._at + size
        if stop > len(self._data):
            raise FormatError(f"{stop - len(self._data)} bytes are missing at the end")
        taken = self._data[self._at : stop]
        self._at = stop
        return taken

    def uint(self, size: int) -> int:
        """An integer of `size` bytes."""
        return int.from_bytes(self.take(size), "big")

    def binary(self, length_bytes: int, most: int) -> bytes:
        """Bytes with their length before them, at most `most`."""
        size = self.uint(length_bytes)
        if size > most:
            raise FormatError(f"a field of {size} bytes is longer than {most}")
        return self.take(size)

    def text(self, most: int) -> str:
        """UTF-8 of at most `most` bytes, not empty, without U+0000."""
        try:
            found = self.binary(2, most).decode()
        except UnicodeDecodeError as error:
            raise FormatError("a text is not well-formed UTF-8") from error
        if not found or "\0" in found:
            raise FormatError("a text is empty or contains U+0000")
        return found

    def message_id(self) -> str:
        """A message id in canonical text."""
        return str(UUID(bytes=self.take(ID_BYTES)))

    @property
    def left(self) -> int:
        """How many bytes are left."""
        return len(self._data) - self._at

    def finish(self) -> None:
        """Raises FormatError if bytes are left over."""
        if self.left:
            raise FormatError(f"{self.left} bytes follow the last field")


def write_uint(value: int, size: int, what: str) -> bytes:
    """`value` in `size` bytes; `what` names it in the error."""
    try:
        return value.to_bytes(size, "big")
    except OverflowError as error:
        raise FormatError(f"{what} {value} does not fit {size} bytes") from error


def write_binary(data: bytes, length_bytes: int, most: int, what: str) -> bytes:
    """`data` with its length before it."""
    if len(data) > most:
        raise FormatError(f"{what} has {len(data)} bytes, more than {most}")
    return len(data).to_bytes(length_bytes, "big") + data


def write_text(text: str, most: int, what: str) -> bytes:
    """A text as :meth:`Reader.text` reads it."""
    if not text or "\0" in text:
        raise FormatError(f"{what} is empty or contains U+0000")
    try:
        return write_binary(text.encode(), 2, most, what)
    except UnicodeEncodeError as error:
        raise FormatError(f"{what} contains surrogates") from error


def write_id(message_id: str) -> bytes:
    """A message id as :meth:`Reader.message_id` reads it."""
    try:
        return UUID(message_id).bytes
    except ValueError as error:
        raise FormatError(f"{message_id!r} is not a message id") from error
