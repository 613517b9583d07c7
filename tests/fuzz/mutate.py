"""A mutator that knows what an MQTT stream looks like, so that its children come past the first checks of the decoder.

A stream is cut into packets by their fixed headers; one of them changes (a flag, a field, a property, a length, its
place), and its remaining length is put right again most of the time. `blind` is the fuzzer's own mutation of bytes.
"""

import random
from collections.abc import Callable

from mqtt.properties import PROPERTIES, Kind
from mqtt.wire import write_varint

Blind = Callable[[bytes], bytes]

_NUMBERS = (0, 1, 2, 3, 4, 5, 15, 16, 100, 101, 127, 128, 255, 256, 16_383, 16_384, 65_535)
_STRINGS = (
    b"",
    b"a",
    b"a/b",
    b"#",
    b"+",
    b"a/#",
    b"a/+/b",
    b"/",
    b"$share/g/a",
    b"$share//a",
    b"$SYS/x",
    b"@me",
    b"\0",
)
_STRINGS += (b"\xff", b"\xed\xa0\x80", b"\xc0\xaf", "é\ufeff".encode(), b"a" * 200, b"+/" * 40, b"/" * 60)


def split(stream: bytes) -> list[tuple[int, bytes]]:
    """(first byte, body) of each packet; a last one that is not whole counts as a packet."""
    packets, at = [], 0
    while at < len(stream):
        head, length, start, shift = stream[at], 0, at + 1, 0
        while start < len(stream) and shift < 28:
            byte = stream[start]
            start += 1
            length |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        packets.append((head, stream[start : start + length]))
        at = start + length
    return packets


def join(packets: list[tuple[int, bytes]]) -> bytes:
    """The stream of `packets`, with the remaining lengths they need."""
    return b"".join(bytes((head,)) + write_varint(len(body)) + body for head, body in packets)


def mutate_stream(stream: bytes, rng: random.Random, blind: Blind, seeds: list[tuple[int, bytes]]) -> bytes:
    """A child of `stream`; `seeds` are packets to take from."""
    packets = split(stream)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        choice = rng.randrange(12)
        if not packets or choice == 0:
            packets.insert(rng.randint(0, len(packets)), rng.choice(seeds))
            continue
        at = rng.randrange(len(packets))
        head, body = packets[at]
        if choice == 1:
            packets.insert(rng.randint(0, len(packets)), (head, body))
        elif choice == 2 and len(packets) > 1:
            del packets[at]
        elif choice == 3:
            other = rng.randrange(len(packets))
            packets[at], packets[other] = packets[other], packets[at]
        elif choice == 4:
            packets[at] = (head ^ 1 << rng.randrange(8), body)
        elif choice == 5:
            packets[at] = (rng.randrange(1, 16) << 4 | head & 15, body)
        else:
            packets[at] = (head, _mutate_body(body, rng, blind))
    child = join(packets)
    if rng.random() < 0.1:  # lengths that do not agree with what follows, ends within a packet
        child = _break(child, rng, blind)
    return child


def _break(stream: bytes, rng: random.Random, blind: Blind) -> bytes:
    choice = rng.randrange(4)
    if choice == 0:
        return stream[: rng.randint(0, len(stream))]
    if choice == 1:
        return blind(stream)
    at = rng.randint(0, len(stream))
    if choice == 2:
        return stream[:at] + bytes((rng.randrange(256),)) * rng.randint(1, 5) + stream[at:]
    return stream[:at] + bytes((rng.randrange(256),)) + stream[at + 1 :]


def _mutate_body(body: bytes, rng: random.Random, blind: Blind) -> bytes:
    choice = rng.randrange(8)
    at = rng.randint(0, len(body))
    if choice == 0:
        return blind(body)
    if choice == 1:
        return body[:at] + bytes((rng.choice(_NUMBERS) & 255,)) + body[at + 1 :]
    if choice == 2:
        return body[:at] + rng.choice(_NUMBERS).to_bytes(2, "big") + body[at + 2 :]
    if choice == 3:
        text = rng.choice(_STRINGS)
        return body[:at] + len(text).to_bytes(2, "big") + text + body[at:]
    if choice == 4:
        return body[:at] + body[at + rng.randint(1, 4) :]
    if choice == 5 and at < len(body):
        return body[:at] + bytes((body[at] ^ 1 << rng.randrange(8),)) + body[at + 1 :]
    return _with_property(body, rng)


def _with_property(body: bytes, rng: random.Random) -> bytes:
    """One more property where a section stands, or might: its length byte is raised by what is put behind it."""
    places = [at for at, length in enumerate(body) if at + length < len(body) and length < 100]
    added = b"".join(_property(rng) for _ in range(rng.choice((1, 1, 1, 2))))
    if not places or len(added) > 27:
        return body + write_varint(len(added)) + added
    at = rng.choice(places)
    return body[:at] + bytes((body[at] + len(added),)) + added + body[at + 1 :]


def _property(rng: random.Random) -> bytes:
    row = rng.choice(PROPERTIES)
    number, text = rng.choice(_NUMBERS), rng.choice(_STRINGS)
    field = len(text).to_bytes(2, "big") + text
    value = {
        Kind.FLAG: bytes((number & 3,)),
        Kind.U16: number.to_bytes(2, "big"),
        Kind.U32: number.to_bytes(4, "big"),
        Kind.VARINT: write_varint(number),
        Kind.PAIR: field + b"\0\1b",
    }.get(row.kind, field)
    return bytes((row.identifier,)) + value
