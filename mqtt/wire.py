"""The data representations of MQTT: integers, strings, binary data (MQTT 5.0, 1.5).

:class:`Reader` reads every packet that is not on the hot path. Its errors are the peer's fault (RemoteProtocolError);
those of the writing functions are ours (LocalProtocolError).
"""

from typing import Final

from mqtt.codes import ReasonCode
from mqtt.errors import LocalProtocolError, RemoteProtocolError

VARINT_MAX: Final = 268_435_455
HEADER_BYTES_MAX: Final = 5
MANY: Final = 4_096
"""The most topic filters, user properties or subscription identifiers that a packet may have."""
_LENGTH_MAX: Final = 65_535


def malformed(detail: str) -> RemoteProtocolError:
    """The error for a packet that cannot be parsed: 0x81 (MQTT 5.0, 4.13)."""
    return RemoteProtocolError(ReasonCode.MALFORMED_PACKET, detail)


def protocol_error(detail: str) -> RemoteProtocolError:
    """The error for a packet that is well formed, but not allowed here: 0x82 (MQTT 5.0, 4.13)."""
    return RemoteProtocolError(ReasonCode.PROTOCOL_ERROR, detail)


def check_number(so_far: int, what: str) -> None:
    """Raises 0x97 if a packet already has MANY: reading more would delay other connections."""
    if so_far == MANY:
        raise RemoteProtocolError(ReasonCode.QUOTA_EXCEEDED, f"a packet has more than {MANY} {what}")


def decode_string(raw: bytes) -> str:
    """Decodes UTF-8 without U+0000 and surrogates (1.5.4), else 0x81. U+FEFF is kept, as [MQTT-1.5.4-3] demands."""
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise malformed("a string is not well-formed UTF-8") from error
    if "\0" in text:
        raise malformed("a string contains U+0000")
    return text


def packet_bytes(header: bytes) -> int:
    """The size in bytes of the packet that begins with this complete fixed header (2.1.1), header included."""
    length, at = 0, 1
    while True:
        length |= (header[at] & 127) << 7 * (at - 1)
        at += 1
        if header[at - 1] < 128:
            return at + length


class Reader:
    """A cursor over one packet or a section of it; each method raises 0x81 if too few bytes are left."""

    __slots__ = ("data", "end", "pos")

    def __init__(self, data: bytes, pos: int, end: int) -> None:
        self.data = data
        self.pos = pos
        self.end = end

    def take(self, size: int) -> bytes:
        """The next `size` bytes."""
        start = self.pos
        stop = start + size
        if stop > self.end:
            raise malformed("the packet ends within a field")
        self.pos = stop
        return self.data[start:stop]

    def u8(self) -> int:
        """A byte."""
        pos = self.pos
        if pos >= self.end:
            raise malformed("the packet ends within a field")
        self.pos = pos + 1
        return self.data[pos]

    def u16(self) -> int:
        """A Two Byte Integer (1.5.2)."""
        return int.from_bytes(self.take(2), "big")

    def u32(self) -> int:
        """A Four Byte Integer (1.5.3)."""
        return int.from_bytes(self.take(4), "big")

    def varint(self) -> int:
        """A Variable Byte Integer in its shortest form (1.5.5)."""
        value = self.u8()
        if value < 0x80:
            return value
        value &= 0x7F
        for shift in (7, 14, 21):
            byte = self.u8()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if byte == 0:
                    raise malformed("a variable byte integer does not use the fewest bytes")
                return value
        raise malformed("a variable byte integer has more than four bytes")

    def binary(self) -> bytes:
        """Binary data with a length prefix (1.5.6)."""
        return self.take(self.u16())

    def string(self) -> str:
        """A UTF-8 encoded string (1.5.4)."""
        return decode_string(self.take(self.u16()))

    def packet_id(self) -> int:
        """A packet identifier, which is never 0 (2.2.1), else 0x82."""
        value = self.u16()
        if not value:
            raise protocol_error("the packet identifier is 0")
        return value

    def has_more(self) -> bool:
        """Whether bytes are left."""
        return self.pos < self.end

    def finish(self) -> None:
        """Raises 0x81 if bytes are left over."""
        if self.pos != self.end:
            raise malformed("the packet has bytes after its last field")


def write_varint(value: int) -> bytes:
    """A Variable Byte Integer (1.5.5)."""
    if 0 <= value < 0x80:
        return value.to_bytes(1, "big")
    if not 0 <= value <= VARINT_MAX:
        raise LocalProtocolError(f"{value} does not fit a variable byte integer (0 to {VARINT_MAX})")
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def write_uint(value: int, size: int) -> bytes:
    """A big-endian integer of `size` bytes."""
    try:
        return value.to_bytes(size, "big")
    except OverflowError as error:
        raise LocalProtocolError(f"{value} does not fit {size} bytes") from error


def write_packet_id(value: int) -> bytes:
    """A packet identifier, 1 to 65,535."""
    if not value:
        raise LocalProtocolError("a packet identifier is needed, not 0")
    return write_uint(value, 2)


def write_binary(data: bytes) -> bytes:
    """Binary data with a length prefix."""
    if len(data) > _LENGTH_MAX:
        raise LocalProtocolError(f"a field of {len(data)} bytes is longer than {_LENGTH_MAX}")
    return len(data).to_bytes(2, "big") + data


def write_string(text: str) -> bytes:
    """A UTF-8 encoded string."""
    if "\0" in text:
        raise LocalProtocolError("an MQTT string must not contain U+0000")
    try:
        return write_binary(text.encode())
    except UnicodeEncodeError as error:
        raise LocalProtocolError("an MQTT string must not contain surrogates") from error
