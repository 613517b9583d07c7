"""Bytes in, packets out: the incremental decoder of MQTT 5.0 and 3.1.1, every packet type of both directions.

Contract of :meth:`Decoder.feed`: it returns the complete packets, in order, however the bytes were split. A protocol
error of the peer ends the stream for good. Packets before the error are not lost: they are returned, `error` is set,
and the next call raises it. Only if no packet precedes it in the same call does this call raise it.
"""

from typing import Final

from mqtt import codes
from mqtt.bodies import DECODERS, FIXED_FLAGS, check_payload_format
from mqtt.codes import PacketType, ReasonCode
from mqtt.errors import RemoteProtocolError
from mqtt.packets import LargePublish, Packet, Puback, Publish
from mqtt.properties import decode_properties
from mqtt.topics import is_topic_name
from mqtt.wire import Reader, decode_string, malformed, protocol_error

# Recently seen topic names, so that few are validated again. Shared by all decoders, since many connections use the
# same topics. Bounded: at most _TOPICS_MAX names of at most _TOPIC_BYTES_MAX bytes; cleared when full.
_TOPICS_MAX: Final = 8_192
_TOPIC_BYTES_MAX: Final = 128
_topics: dict[bytes, str] = {}

_PUBLISH: Final = PacketType.PUBLISH
_NAME: Final = b"MQTT"
_OLD_NAME: Final = b"MQIsdp"  # of MQTT 3.1
_VERSION_BYTES: Final = 2 + len(_OLD_NAME) + 1  # of CONNECT, up to the protocol level


def _publish_flags(nibble: int) -> tuple[int, bool, bool] | None:
    qos, retain, dup = nibble >> 1 & 3, bool(nibble & 1), bool(nibble & 8)
    return None if qos == 3 or (dup and not qos) else (qos, retain, dup)


# (qos, retain, dup) by the lower four bits of PUBLISH; None for QoS 3 [MQTT-3.3.1-4] and DUP at QoS 0 [MQTT-3.3.1-2].
_PUBLISH_FLAGS: Final = tuple(_publish_flags(nibble) for nibble in range(16))


class Decoder:
    """Decodes one direction of one connection.

    `max_packet_size` in bytes, fixed header included; a larger packet is refused (0x95) once its header is read.
    `version` is 4 or 5; None on a server, which learns it from CONNECT and accepts nothing else before. With
    `skips_large`, for 3.1.1, a PUBLISH that is too large is no error: its payload is discarded as it comes, and what is
    left is a :class:`LargePublish`, once all of it has come.
    """

    __slots__ = ("_large", "_max_packet_size", "_needed", "_partial", "_skips_large", "_to_skip", "error", "version")

    def __init__(self, max_packet_size: int, version: int | None = None, *, skips_large: bool = False) -> None:
        self._max_packet_size, self._skips_large = max_packet_size, skips_large
        self._large: LargePublish | None = None  # its payload is being discarded
        self._to_skip = 0  # bytes of it that have not come yet
        self._partial: bytearray | None = None
        self._needed = 0  # bytes that `_partial` must have before it is parsed again
        self.version = version
        self.error: RemoteProtocolError | None = None

    @property
    def partial(self) -> bytes:
        """The beginning of a packet whose end has not come yet."""
        return bytes(self._partial or b"")

    def feed(self, data: bytes | memoryview) -> list[Packet]:
        """The packets that `data` completes; `data` may be reused afterwards. Raises RemoteProtocolError, see above."""
        if self.error is not None:
            raise self.error
        buf = bytes(data)
        packets: list[Packet] = []
        if self._large is not None:
            buf = self._skip(buf, packets)
        if self._partial is not None:
            self._partial += buf
            if len(self._partial) < self._needed:
                return []
            buf = bytes(self._partial)
            self._partial = None
        try:
            rest = self._parse(buf, packets)
        except RemoteProtocolError as error:
            self.error = error
            if packets:
                return packets
            raise
        if rest < len(buf):
            self._partial = bytearray(buf[rest:])
        return packets

    def _parse(self, buf: bytes, packets: list[Packet]) -> int:
        """Appends the complete packets in `buf` to `packets`; returns where the first incomplete one begins."""
        if self.version is None and buf and buf[0] >> 4 != 1:
            raise protocol_error("the first packet is not CONNECT")  # [MQTT-3.1.0-1]
        is_v5 = self.version == codes.VERSION_5
        limit = self._max_packet_size
        pos = 0
        end = len(buf)
        while end - pos >= 2:
            head = buf[pos]
            length = buf[pos + 1]
            start = pos + 2
            if length > 127:  # the remaining length has more than one byte (2.1.4)
                shift = 7
                length &= 127
                while True:
                    if start == end:
                        self._needed = end - pos + 1
                        return pos
                    byte = buf[start]
                    start += 1
                    length |= (byte & 127) << shift
                    if byte < 128:
                        break
                    shift += 7
                    if shift == 28:
                        raise malformed("the remaining length has more than four bytes")
                if not byte and is_v5:
                    raise malformed("the remaining length does not use the fewest bytes")  # [MQTT-1.5.5-1]
            stop = start + length
            if stop - pos > limit:
                if self.version is None:  # CONNECT: its first bytes tell in which version to answer
                    known = min(start + _VERSION_BYTES, stop)
                    if known > end:
                        self._needed = known - pos
                        return pos
                    self._learn_version(Reader(buf, start, known))
                if self._skips_large and head & 0xF0 == 0x30:
                    known = _payload_begin(buf, head, start)
                    if end < known <= stop:
                        self._needed = known - pos
                        return pos
                    large = _large(_publish(buf, head, start, min(known, stop), is_v5), stop - pos)
                    if stop > end:
                        self._large, self._to_skip = large, stop - end
                        return end
                    packets.append(large)
                    pos = stop
                    continue
                detail = f"a packet of {stop - pos} bytes is larger than {limit}"
                raise RemoteProtocolError(ReasonCode.PACKET_TOO_LARGE, detail)
            if stop > end:
                self._needed = stop - pos
                return pos
            if head & 0xF0 == 0x30:
                packets.append(_publish(buf, head, start, stop, is_v5))
            elif head == 0x40 and length == 2:
                packet_id = buf[start] << 8 | buf[start + 1]
                if not packet_id:
                    raise protocol_error("the packet identifier is 0")
                packets.append(Puback(packet_id))
            else:
                packets.append(self._other(head, Reader(buf, start, stop)))
                is_v5 = self.version == codes.VERSION_5
            pos = stop
        self._needed = end - pos + 1
        return pos

    def _skip(self, buf: bytes, packets: list[Packet]) -> bytes:
        """Discards what `buf` has of the payload that is too large; returns what follows it."""
        skipped = min(self._to_skip, len(buf))
        self._to_skip -= skipped
        if self._large is not None and not self._to_skip:
            packets.append(self._large)
            self._large = None
        return buf[skipped:]

    def _other(self, head: int, reader: Reader) -> Packet:
        kind = head >> 4
        decode = DECODERS.get(kind)
        is_v5 = self.version == codes.VERSION_5
        if decode is None or (kind == PacketType.AUTH and not is_v5):
            raise malformed(f"unknown packet type {kind}")
        if head & 0x0F != FIXED_FLAGS.get(kind, 0):
            raise malformed(f"the fixed header flags of {PacketType(kind).name} are wrong")  # [MQTT-2.1.3-1]
        if kind == PacketType.CONNECT:
            self._learn_version(reader)
            is_v5 = self.version == codes.VERSION_5
        packet = decode(kind, reader, is_v5)
        reader.finish()
        return packet

    def _learn_version(self, reader: Reader) -> None:
        """Reads protocol name and level (3.1.2.1, 3.1.2.2); sets the version of a CONNACK that the client can
        understand.

        Any other name or level than MQTT 3.1.1 or 5.0 gets a 3.1.1 CONNACK with return code 1 [MQTT-3.1.2-2 of 3.1.1].
        So clients of 3.1 and of later versions get an answer. So do mosquitto bridges, which set bit 7 of the level and
        then reconnect without it.
        """
        name = reader.take(reader.u16())
        level = reader.u8()
        if self.version is not None and (name, level) != (_NAME, self.version):
            # answered in the version of the first
            raise protocol_error("a second CONNECT, with another protocol version")
        if name == _NAME and level in (codes.VERSION_3_1_1, codes.VERSION_5):
            self.version = level
            return
        self.version = codes.VERSION_3_1_1
        raise RemoteProtocolError(ReasonCode.UNSUPPORTED_PROTOCOL_VERSION, _unsupported(name, level))


def _unsupported(name: bytes, level: int) -> str:
    if name not in (_NAME, _OLD_NAME):
        return "the protocol name is not MQTT"
    return f"unsupported protocol version: {name.decode()}, level {level} (0x{level:02X})"


def _publish(buf: bytes, head: int, start: int, stop: int, is_v5: bool) -> Publish:
    """PUBLISH (3.3): the hot path."""
    flags = _PUBLISH_FLAGS[head & 0x0F]
    if flags is None:
        raise malformed("PUBLISH has QoS 3, or DUP with QoS 0")
    qos, retain, dup = flags
    first = start + 2
    if first > stop:
        raise malformed("PUBLISH ends within its topic")
    pos = first + (buf[start] << 8 | buf[start + 1])
    if pos + (2 if qos else 0) + is_v5 > stop:
        raise malformed("PUBLISH ends before its payload")
    raw = buf[first:pos]
    topic = _topics.get(raw)
    if topic is None:
        topic = _topic(raw, is_v5)
    packet_id = 0
    if qos:
        packet_id = buf[pos] << 8 | buf[pos + 1]
        if not packet_id:
            raise protocol_error("the packet identifier is 0")  # [MQTT-2.2.1-3]
        pos += 2
    if not is_v5:
        return Publish(topic, buf[pos:stop], qos, retain, dup, packet_id)
    if not buf[pos] and topic:
        return Publish(topic, buf[pos + 1 : stop], qos, retain, dup, packet_id)
    reader = Reader(buf, pos, stop)
    properties = decode_properties(reader, _PUBLISH)
    if not topic and (properties is None or "topic_alias" not in properties):
        raise protocol_error("PUBLISH has neither a topic name nor a topic alias")  # 3.3.2.1
    payload = buf[reader.pos : stop]
    if properties is not None:
        check_payload_format(payload, properties)
    return Publish(topic, payload, qos, retain, dup, packet_id, properties)


def _payload_begin(buf: bytes, head: int, start: int) -> int:
    """Where the payload of a PUBLISH of 3.1.1 begins, as far as the bytes that have come tell: a lower bound."""
    if len(buf) < start + 2:
        return start + 2
    return start + 2 + (buf[start] << 8 | buf[start + 1]) + (2 if head & 0x06 else 0)


def _large(packet: Publish, size: int) -> LargePublish:
    return LargePublish(packet.topic, b"", packet.qos, packet.retain, packet.dup, packet.packet_id, None, size)


def _topic(raw: bytes, may_be_empty: bool) -> str:
    """A topic name that is not among the recently seen ones; 0x90 if it is invalid, 0x81 if it is not UTF-8."""
    topic = decode_string(raw)
    if not topic and may_be_empty:
        return ""
    if not is_topic_name(topic):
        raise RemoteProtocolError(ReasonCode.TOPIC_NAME_INVALID, "the topic name is empty or has wildcards")
    if len(raw) <= _TOPIC_BYTES_MAX:
        if len(_topics) >= _TOPICS_MAX:
            _topics.clear()
        _topics[raw] = topic
    return topic
