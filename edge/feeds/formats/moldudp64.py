"""MoldUDP64 1.00 (NASDAQ OMX, 2009): datagrams with numbered messages, and the request for messages that are missing.

    downstream packet:  session 10 | sequence number 8 | message count 2 | messages, each length 2 | data
    request packet:     session 10 | sequence number 8 | requested message count 2

Integers are big-endian; the session is letters and digits, padded with spaces. The sequence number is that of the first
message. In a heartbeat (count 0) and at the end of the session (count 0xFFFF), packets without messages, it is the
number that comes next. A new session numbers from 1 again, so it is the epoch of the stream id, as a number
(:func:`epoch_of_session`).
"""

import string
from collections.abc import Sequence
from struct import Struct as Layout
from typing import Final, TypeAlias

from msgspec import Struct

from edge.feeds.errors import FrameError
from edge.feeds.source import NUMBER_MAX, Malformed, SourceMessage, checked_number, checked_stream, quoted, stream_id
from feeds.errors import FeedSettingsError

SESSION_BYTES: Final = 10
COUNT_MAX: Final = 0xFFFE
MESSAGE_BYTES_MAX: Final = 0xFFFF
DATAGRAM_BYTES_MAX: Final = 65_507
"""What fits a UDP datagram over IPv4."""
_END_OF_SESSION: Final = 0xFFFF
_CHARACTERS: Final = string.digits + string.ascii_uppercase + string.ascii_lowercase
_HEAD: Final = Layout(">10sQH")
_LENGTH: Final = Layout(">H")


class Heartbeat(Struct, frozen=True):
    """All messages before `next_number` have been sent."""

    stream: str
    next_number: int


class EndOfSession(Struct, frozen=True):
    """The session ends, and `next_number` will not come. What is missing can be requested for a short while."""

    stream: str
    next_number: int


class Request(Struct, frozen=True):
    """Ask to send `count` messages from `number` on again."""

    session: str
    number: int
    count: int


Downstream: TypeAlias = SourceMessage | Heartbeat | EndOfSession | Malformed


class MoldUdp64Parser:
    """Reads downstream packets of one source. `name`: of the source."""

    def __init__(self, name: str) -> None:
        self._name = checked_stream(name)
        self._count = 0

    def datagram(self, data: bytes) -> list[Downstream]:
        """What a downstream packet contains. One that is damaged anywhere contains nothing but the report: its
        messages can be requested. The field `session` of a message is its session."""
        position = self._count
        self._count += 1
        stream: str | None = None
        number: int | None = None
        try:
            session, number, count = _head(data)
            stream = stream_id(self._name, None, epoch_of_session(session))
            if count == _END_OF_SESSION or not count:
                _nothing_follows(data, _HEAD.size)
                return [(EndOfSession if count else Heartbeat)(stream, checked_number(number))]
            checked_number(number + count - 1)
            fields = {"session": session}
            return [
                SourceMessage(stream, number + index, payload, None, fields)
                for index, payload in enumerate(_messages(data, count))
            ]
        except FrameError as error:
            readable = number if number is not None and number <= NUMBER_MAX else None
            return [Malformed(position, str(error), stream, readable)]


def epoch_of_session(session: str) -> int:
    """The session as a number below 2^60: another one for each session. It grows if sessions do as numbers, or in the
    order of ASCII with the same length, such as dates."""
    epoch = 0
    for character in session:
        epoch = epoch * (len(_CHARACTERS) + 1) + 1 + _CHARACTERS.index(character)
    return epoch


def build_downstream(session: str, number: int, messages: Sequence[bytes]) -> bytes:
    """A downstream packet; without messages a heartbeat. Raises FeedSettingsError."""
    if len(messages) > COUNT_MAX:
        raise FeedSettingsError(f"{len(messages)} messages are more than {COUNT_MAX}, the most of a packet")
    parts = [_built_head(session, number, len(messages))]
    for message in messages:
        if len(message) > MESSAGE_BYTES_MAX:
            raise FeedSettingsError(f"a message of {len(message)} bytes is longer than {MESSAGE_BYTES_MAX}")
        parts += (_LENGTH.pack(len(message)), message)
    packet = b"".join(parts)
    if len(packet) > DATAGRAM_BYTES_MAX:
        raise FeedSettingsError(f"a packet of {len(packet)} bytes does not fit a datagram: send fewer messages")
    return packet


def build_end_of_session(session: str, next_number: int) -> bytes:
    """The packet at the end of a session. Raises FeedSettingsError."""
    return _built_head(session, next_number, _END_OF_SESSION)


def build_request(request: Request) -> bytes:
    """A request packet. Raises FeedSettingsError."""
    if not 1 <= request.count <= COUNT_MAX:
        raise FeedSettingsError(f"a request is for 1 to {COUNT_MAX} messages, not {request.count}")
    return _built_head(request.session, request.number, request.count)


def parse_request(data: bytes) -> Request:
    """The request of a packet. Raises FrameError."""
    session, number, count = _head(data)
    _nothing_follows(data, _HEAD.size)
    if not 1 <= count <= COUNT_MAX:
        raise FrameError(f"a request is for 1 to {COUNT_MAX} messages, not {count}")
    checked_number(number + count - 1)
    return Request(session, number, count)


def _built_head(session: str, number: int, count: int) -> bytes:
    raw = session.encode(errors="replace")
    if not _is_session(raw) or len(raw) > SESSION_BYTES:
        raise FeedSettingsError(f"a session is 1 to {SESSION_BYTES} letters and digits, unlike {quoted(session)}")
    if not 1 <= number <= NUMBER_MAX:
        raise FeedSettingsError(f"a sequence number is 1 to {NUMBER_MAX}, not {number}")
    return _HEAD.pack(raw.ljust(SESSION_BYTES), number, count)


def _head(data: bytes) -> tuple[str, int, int]:
    if len(data) < _HEAD.size:
        raise FrameError(f"a packet has at least {_HEAD.size} bytes, this one {len(data)}")
    raw, number, count = _HEAD.unpack_from(data)
    raw = raw.rstrip(b" ")
    if not _is_session(raw):
        raise FrameError(f"a session is letters and digits, unlike {quoted(raw)}")
    if not number:
        raise FrameError("the sequence number is 0; sessions begin with 1")
    return raw.decode(), number, count


def _is_session(raw: bytes) -> bool:
    return raw.isalnum()


def _messages(data: bytes, count: int) -> list[bytes]:
    found = []
    start = _HEAD.size
    for index in range(count):
        end = start + _LENGTH.size
        if end <= len(data):
            (size,) = _LENGTH.unpack_from(data, start)
            start, end = end, end + size
        if end > len(data):
            raise FrameError(f"the packet ends within message {index + 1} of {count}")
        found.append(data[start:end])
        start = end
    _nothing_follows(data, start)
    return found


def _nothing_follows(data: bytes, end: int) -> None:
    if len(data) > end:
        raise FrameError(f"{len(data) - end} bytes follow the last field of the packet")
