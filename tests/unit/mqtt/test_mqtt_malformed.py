"""What a peer may not send, and the reason code it is told (MQTT 5.0, 4.13)."""

from contextlib import suppress

import pytest

from mqtt.codes import ReasonCode
from mqtt.decode import Decoder
from mqtt.errors import RemoteProtocolError
from mqtt.packets import Connect, Publish
from mqtt.wire import MANY, write_varint

LIMIT = 1_000
MALFORMED = ReasonCode.MALFORMED_PACKET
ERROR = ReasonCode.PROTOCOL_ERROR
TOPIC = ReasonCode.TOPIC_NAME_INVALID
FILTER = ReasonCode.TOPIC_FILTER_INVALID
VERSION = ReasonCode.UNSUPPORTED_PROTOCOL_VERSION


def packet(head: int, *parts: bytes) -> bytes:
    body = b"".join(parts)
    assert len(body) < 128
    return bytes((head, len(body))) + body


def field(data: bytes) -> bytes:
    return len(data).to_bytes(2, "big") + data


def section(data: bytes) -> bytes:
    return bytes((len(data),)) + data


ID = b"\0\1"
MQTT4 = field(b"MQTT") + b"\4"
MQTT5 = field(b"MQTT") + b"\5"
KEEP_ALIVE = b"\0\0"

EITHER_VERSION = {
    "packet-type-0": (packet(0x00), MALFORMED),
    "remaining-length-of-five-bytes": (b"\x30\x80\x80\x80\x80\x01", MALFORMED),
    "too-large-seen-in-the-header": (b"\x30\xff\xff\xff\x7f", ReasonCode.PACKET_TOO_LARGE),
    "publish-qos-3": (packet(0x36, field(b"a"), ID, b"\0"), MALFORMED),
    "publish-dup-at-qos-0": (packet(0x38, field(b"a"), b"\0"), MALFORMED),
    "publish-empty": (packet(0x30), MALFORMED),
    "publish-topic-beyond-the-end": (packet(0x30, b"\0\x09a"), MALFORMED),
    "publish-without-packet-id": (packet(0x32, field(b"a")), MALFORMED),
    "publish-packet-id-0": (packet(0x32, field(b"a"), b"\0\0", b"\0"), ERROR),
    "publish-topic-hash": (packet(0x30, field(b"a/#"), b"\0"), TOPIC),
    "publish-topic-plus": (packet(0x30, field(b"+/a"), b"\0"), TOPIC),
    "publish-topic-nul": (packet(0x30, field(b"a\0b"), b"\0"), MALFORMED),
    "publish-topic-surrogate": (packet(0x30, field(b"\xed\xa0\x80"), b"\0"), MALFORMED),
    "publish-topic-overlong-utf8": (packet(0x30, field(b"\xc0\xaf"), b"\0"), MALFORMED),
    "puback-packet-id-0": (packet(0x40, b"\0\0"), ERROR),
    "puback-short": (packet(0x40, b"\1"), MALFORMED),
    "puback-flags": (packet(0x42, ID), MALFORMED),
    "pubrel-flags": (packet(0x60, ID), MALFORMED),
    "pubrec-packet-id-0": (packet(0x50, b"\0\0"), ERROR),
    "subscribe-flags": (packet(0x80, ID, b"\0", field(b"a"), b"\0"), MALFORMED),
    "unsubscribe-flags": (packet(0xA0, ID, b"\0", field(b"a")), MALFORMED),
    "pingreq-with-body": (packet(0xC0, b"\0"), MALFORMED),
    "pingreq-flags": (packet(0xC1), MALFORMED),
    "connack-reserved-flags": (packet(0x20, b"\2\0\0"), MALFORMED),
    "connack-refusal-with-session": (packet(0x20, b"\1\x05\0"), ERROR),
}

VERSION_4 = {
    "publish-empty-topic": (packet(0x30, field(b"")), TOPIC),
    "puback-long": (packet(0x40, ID, b"\0"), MALFORMED),
    "subscribe-no-filter": (packet(0x82, ID), ERROR),
    "subscribe-qos-3": (packet(0x82, ID, field(b"a"), b"\3"), ERROR),
    "subscribe-options-of-5.0": (packet(0x82, ID, field(b"a"), b"\4"), MALFORMED),
    "subscribe-bad-filter": (packet(0x82, ID, field(b"a#"), b"\0"), FILTER),
    "subscribe-empty-filter": (packet(0x82, ID, field(b""), b"\0"), FILTER),
    "unsubscribe-no-filter": (packet(0xA2, ID), ERROR),
    "suback-reserved-code": (packet(0x90, ID, b"\x87"), MALFORMED),
    "connack-return-code-6": (packet(0x20, b"\0\6"), ERROR),
    "unsuback-with-body": (packet(0xB0, ID, b"\0"), MALFORMED),
    "disconnect-with-body": (packet(0xE0, b"\0"), MALFORMED),
    "auth": (packet(0xF0), MALFORMED),
}

VERSION_5 = {
    "remaining-length-not-minimal": (b"\xc0\x80\x00", MALFORMED),
    "publish-empty-topic-without-alias": (packet(0x30, field(b""), b"\0"), ERROR),
    "publish-no-property-length": (packet(0x30, field(b"a")), MALFORMED),
    "publish-properties-beyond-the-end": (packet(0x30, field(b"a"), b"\x09\1\1"), MALFORMED),
    "publish-property-truncated": (packet(0x30, field(b"a"), section(b"\2\0\0")), MALFORMED),
    "publish-property-unknown": (packet(0x30, field(b"a"), section(b"\x7f\0")), MALFORMED),
    "publish-property-of-connack": (packet(0x30, field(b"a"), section(b"\x13\0\1")), MALFORMED),
    "publish-property-twice": (packet(0x30, field(b"a"), section(b"\1\1\1\1")), ERROR),
    "publish-property-length-not-minimal": (packet(0x30, field(b"a"), b"\x80\0"), MALFORMED),
    "publish-payload-format-2": (packet(0x30, field(b"a"), section(b"\1\2")), ERROR),
    "publish-payload-not-utf8": (packet(0x30, field(b"a"), section(b"\1\1"), b"\xff"), ReasonCode(0x99)),
    "publish-alias-0": (packet(0x30, field(b"a"), section(b"\x23\0\0")), ReasonCode.TOPIC_ALIAS_INVALID),
    "publish-response-topic-wildcard": (packet(0x30, field(b"a"), section(b"\x08" + field(b"#"))), TOPIC),
    "publish-subscription-identifier-0": (packet(0x30, field(b"a"), section(b"\x0b\0")), ERROR),
    "puback-reason-unknown": (packet(0x40, ID, b"\x01"), ERROR),
    "puback-bytes-left": (packet(0x40, ID, b"\0\0\0"), MALFORMED),
    "pubrel-reason-of-puback": (packet(0x62, ID, b"\x10"), ERROR),
    "subscribe-no-filter": (packet(0x82, ID, b"\0"), ERROR),
    "subscribe-packet-id-0": (packet(0x82, b"\0\0\0", field(b"a"), b"\0"), ERROR),
    "subscribe-no-options": (packet(0x82, ID, b"\0", field(b"a")), MALFORMED),
    "subscribe-qos-3": (packet(0x82, ID, b"\0", field(b"a"), b"\3"), ERROR),
    "subscribe-retain-handling-3": (packet(0x82, ID, b"\0", field(b"a"), b"\x30"), ERROR),
    "subscribe-reserved-options": (packet(0x82, ID, b"\0", field(b"a"), b"\x40"), MALFORMED),
    "subscribe-identifier-twice": (packet(0x82, ID, section(b"\x0b\1\x0b\2"), field(b"a"), b"\0"), ERROR),
    "subscribe-hash-not-last": (packet(0x82, ID, b"\0", field(b"#/a"), b"\0"), FILTER),
    "subscribe-plus-not-alone": (packet(0x82, ID, b"\0", field(b"a+/b"), b"\0"), FILTER),
    "subscribe-shared-without-filter": (packet(0x82, ID, b"\0", field(b"$share/g"), b"\0"), FILTER),
    "subscribe-shared-without-name": (packet(0x82, ID, b"\0", field(b"$share//a"), b"\0"), FILTER),
    "subscribe-shared-wildcard-name": (packet(0x82, ID, b"\0", field(b"$share/+/a"), b"\0"), FILTER),
    "subscribe-shared-no-local": (packet(0x82, ID, b"\0", field(b"$share/g/a"), b"\4"), ERROR),
    "unsubscribe-no-filter": (packet(0xA2, ID, b"\0"), ERROR),
    "suback-reason-unknown": (packet(0x90, ID, b"\0\x03"), ERROR),
    "unsuback-reason-unknown": (packet(0xB0, ID, b"\0\x01"), ERROR),
    "disconnect-reason-unknown": (packet(0xE0, b"\x01"), ERROR),
    "disconnect-flags": (packet(0xE1), MALFORMED),
    "auth-reason-without-properties": (packet(0xF0, b"\x18"), MALFORMED),
    "auth-data-without-method": (packet(0xF0, b"\x18", section(b"\x16\0\0")), ERROR),
}

FIRST = {
    "not-connect": (packet(0xC0), ERROR),
    "http": (b"G", ERROR),
    "protocol-name": (packet(0x10, field(b"AMQP"), b"\4\2", KEEP_ALIVE, field(b"")), VERSION),
    "mqtt-3.1": (packet(0x10, field(b"MQIsdp"), b"\3\2", KEEP_ALIVE, field(b"a")), VERSION),
    "level-6": (packet(0x10, field(b"MQTT"), b"\6\2", KEEP_ALIVE, field(b"a")), VERSION),
    "connect-flags-of-the-header": (packet(0x11, MQTT5, b"\2", KEEP_ALIVE, b"\0", field(b"")), MALFORMED),
    "reserved-flag": (packet(0x10, MQTT5, b"\3", KEEP_ALIVE, b"\0", field(b"")), MALFORMED),
    "will-qos-without-will": (packet(0x10, MQTT5, b"\x0a", KEEP_ALIVE, b"\0", field(b"")), MALFORMED),
    "will-retain-without-will": (packet(0x10, MQTT4, b"\x22", KEEP_ALIVE, field(b"")), MALFORMED),
    "will-qos-3": (packet(0x10, MQTT4, b"\x1e", KEEP_ALIVE, field(b""), field(b"t"), field(b"")), MALFORMED),
    "will-topic-wildcard": (packet(0x10, MQTT4, b"\6", KEEP_ALIVE, field(b""), field(b"#"), field(b"")), TOPIC),
    "password-alone-3.1.1": (packet(0x10, MQTT4, b"\x42", KEEP_ALIVE, field(b""), field(b"p")), MALFORMED),
    "user-name-missing": (packet(0x10, MQTT4, b"\x82", KEEP_ALIVE, field(b"")), MALFORMED),
    "bytes-left": (packet(0x10, MQTT4, b"\2", KEEP_ALIVE, field(b""), b"x"), MALFORMED),
    "client-id-not-utf8": (packet(0x10, MQTT4, b"\2", KEEP_ALIVE, field(b"\xff")), MALFORMED),
    "receive-maximum-0": (packet(0x10, MQTT5, b"\2", KEEP_ALIVE, section(b"\x21\0\0"), field(b"")), ERROR),
    "packet-size-0": (packet(0x10, MQTT5, b"\2", KEEP_ALIVE, section(b"\x27\0\0\0\0"), field(b"")), ERROR),
    "request-problem-2": (packet(0x10, MQTT5, b"\2", KEEP_ALIVE, section(b"\x17\2"), field(b"")), ERROR),
    "auth-data-alone": (packet(0x10, MQTT5, b"\2", KEEP_ALIVE, section(b"\x16\0\0"), field(b"")), ERROR),
}

CASES = [
    pytest.param(version, data, reason, id=f"{prefix}-{name}")
    for prefix, version, table in (
        ("v4", 4, EITHER_VERSION),
        ("v5", 5, EITHER_VERSION),
        ("v4", 4, VERSION_4),
        ("v5", 5, VERSION_5),
        ("first", None, FIRST),
    )
    for name, (data, reason) in table.items()
]


@pytest.mark.parametrize(("version", "data", "reason"), CASES)
def test_malformed_packet_has_the_reason_code(version: int | None, data: bytes, reason: ReasonCode) -> None:
    """At once or byte by byte, the same reason."""
    with pytest.raises(RemoteProtocolError) as at_once:
        Decoder(LIMIT, version).feed(data)
    assert at_once.value.reason is reason, at_once.value
    decoder = Decoder(LIMIT, version)
    for at in range(len(data)):
        with suppress(RemoteProtocolError):
            assert decoder.feed(data[at : at + 1]) == []
    assert decoder.error is not None
    assert decoder.error.reason is reason


@pytest.mark.parametrize("name", ["mqtt-3.1", "level-6", "protocol-name"])
def test_a_refused_version_says_in_which_one_to_answer(name: str) -> None:
    """The decoder's version is the one whose CONNACK says what is wrong: 3.1.1, as of all that is not 5.0."""
    decoder = Decoder(LIMIT)
    with pytest.raises(RemoteProtocolError):
        decoder.feed(FIRST[name][0])
    assert decoder.version == 4


def test_largest_packet_fits_exactly() -> None:
    """The limit is inclusive and counts the fixed header."""
    data = packet(0x30, field(b"a"), bytes(20))
    assert Decoder(len(data), 4).feed(data) == [Publish("a", bytes(20))]
    with pytest.raises(RemoteProtocolError) as raised:
        Decoder(len(data) - 1, 4).feed(data[:2])
    assert raised.value.reason is ReasonCode.PACKET_TOO_LARGE


def test_3_1_1_tolerates_a_remaining_length_that_is_not_minimal() -> None:
    """Only MQTT 5.0 demands the shortest form [MQTT-1.5.5-1]; small 3.1.1 clients send four bytes always."""
    data = packet(0x10, MQTT4, b"\2", KEEP_ALIVE, field(b"c"))
    padded = b"\x10" + bytes((data[1] | 0x80, 0x80, 0x80, 0)) + data[2:]
    assert Decoder(LIMIT).feed(padded) == [Connect("c", version=4)]


def test_byte_order_mark_is_kept() -> None:
    """U+FEFF is a character like any other [MQTT-1.5.4-3]."""
    assert Decoder(LIMIT, 4).feed(packet(0x30, field("\ufeffa".encode()))) == [Publish("\ufeffa")]


@pytest.mark.parametrize("n_items", [MANY, MANY + 1])
@pytest.mark.parametrize(
    ("head", "before", "item"),
    [
        (0x82, ID + b"\0", field(b"a") + b"\0"),
        (0xA2, ID + b"\0", field(b"a")),
        (0x30, field(b"a"), b"\x26\0\0\0\0"),
        (0x30, field(b"a"), b"\x0b\1"),
        (0xE0, b"\0", b"\x26\0\0\0\0"),
    ],
    ids=["SUBSCRIBE", "UNSUBSCRIBE", "user properties", "subscription identifiers", "DISCONNECT"],
)
def test_a_packet_is_limited_in_what_it_has_many_of(head: int, before: bytes, item: bytes, n_items: int) -> None:
    """Reading it must not keep others waiting: 0x97 beyond."""
    items = item * n_items
    length = b"" if before.endswith(b"\0") and len(before) == 3 else write_varint(len(items))
    body = before + length + items
    data = bytes((head,)) + write_varint(len(body)) + body
    if n_items == MANY:
        assert len(Decoder(1 << 20, 5).feed(data)) == 1
        return
    with pytest.raises(RemoteProtocolError) as caught:
        Decoder(1 << 20, 5).feed(data)
    assert caught.value.reason is ReasonCode.QUOTA_EXCEEDED
