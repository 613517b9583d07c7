"""The MQTT codec: every packet survives the way there and back, however its bytes are cut, whatever they become."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqtt import encode as encoding
from mqtt.codes import ALLOWED_REASONS, ConnectReturnCode, PacketType, ReasonCode
from mqtt.decode import Decoder
from mqtt.encode import encode, encode_publish
from mqtt.errors import LocalProtocolError, RemoteProtocolError
from mqtt.packets import (
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Properties,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
    Will,
)
from mqtt.properties import PROPERTIES, WILL, Kind, Property, encode_properties
from tests.draw import examples

MAX_SIZE = 1 << 20
VERSIONS = (4, 5)
BASE_SETTINGS = settings(max_examples=examples(60), deadline=None, database=None)

text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
binary = st.binary(max_size=20)
packet_id = st.integers(1, 65_535)
qos = st.integers(0, 2)
topic = text.map(lambda name: name.replace("#", "").replace("+", "")).filter(bool)
topic_filter = st.one_of(topic, st.sampled_from(["#", "+", "a/+/c", "a/b/#", "$share/g/a/#", "/", "+/+"])).filter(
    lambda name: not name.startswith("$share/") or name == "$share/g/a/#"
)


def property_value(row: Property, place: int) -> st.SearchStrategy[Any]:
    low = 0 if row.if_zero is None else 1
    values: dict[Kind, st.SearchStrategy[Any]] = {
        Kind.FLAG: st.integers(0, 1),
        Kind.U16: st.integers(low, 65_535),
        Kind.U32: st.integers(low, 2**32 - 1),
        Kind.VARINT: st.lists(
            st.integers(low, 268_435_455), min_size=1, max_size=3 if place == PacketType.PUBLISH else 1
        ),
        Kind.STRING: topic if row.name == "response_topic" else text,
        Kind.BINARY: binary,
        Kind.PAIR: st.lists(st.tuples(text, text), min_size=1, max_size=3),
    }
    return values[row.kind]


def properties(place: int, version: int) -> st.SearchStrategy[Properties | None]:
    if version == 4:
        return st.none()
    rows = [row for row in PROPERTIES if place in row.places]
    optional: dict[str, Any] = {row.name: property_value(row, place) for row in rows}

    def sound(found: Properties) -> Properties | None:
        if "authentication_method" not in found:
            found.pop("authentication_data", None)
        return found or None

    return st.fixed_dictionaries({}, optional=optional).map(sound)


def with_sound_payload(message: Any) -> Any:
    if message.properties and message.properties.get("payload_format_indicator"):
        message.payload = message.payload.hex().encode()
    return message


def publishes(version: int) -> st.SearchStrategy[Packet]:
    def sound(packet: Publish, drop_topic: bool) -> Publish:
        if not packet.qos:
            packet.packet_id, packet.dup = 0, False
        if drop_topic and packet.properties and "topic_alias" in packet.properties:
            packet.topic = ""
        sound_packet: Publish = with_sound_payload(packet)
        return sound_packet

    fields = (topic, st.binary(max_size=300), qos, st.booleans(), st.booleans(), packet_id)
    return st.builds(
        sound, st.builds(Publish, *fields, properties(PacketType.PUBLISH, version)), drop_topic=st.booleans()
    )


def connects(version: int) -> st.SearchStrategy[Packet]:
    wills = st.builds(Will, topic, binary, qos, st.booleans(), properties(WILL, version)).map(with_sound_payload)

    def sound(packet: Connect) -> Connect:
        if packet.username is None and version == 4:
            packet.password = None
        return packet

    return st.builds(
        Connect,
        client_id=text,
        version=st.just(version),
        clean_start=st.booleans(),
        keep_alive=st.integers(0, 65_535),
        username=st.none() | text,
        password=st.none() | binary,
        will=st.none() | wills,
        properties=properties(PacketType.CONNECT, version),
    ).map(sound)


def connacks(version: int) -> st.SearchStrategy[Packet]:
    refusals: st.SearchStrategy[Any] = reasons(PacketType.CONNACK)
    if version == 4:
        refusals = st.sampled_from(ConnectReturnCode)
    found = properties(PacketType.CONNACK, version)
    return st.builds(Connack, st.just(False), refusals, found) | st.builds(Connack, st.booleans(), properties=found)


def reasons(kind: PacketType) -> st.SearchStrategy[ReasonCode]:
    return st.sampled_from(sorted(ALLOWED_REASONS[kind].values()))


def acknowledgements(packet_class: type, kind: PacketType, version: int) -> st.SearchStrategy[Packet]:
    reason = reasons(kind) if version == 5 else st.just(ReasonCode.SUCCESS)
    return st.builds(packet_class, packet_id, reason, properties(kind, version))


def packets_of(version: int) -> dict[str, st.SearchStrategy[Packet]]:
    flag = st.booleans() if version == 5 else st.just(False)
    subscriptions = st.builds(
        Subscription, topic_filter, qos, flag, flag, st.integers(0, 2) if version == 5 else st.just(0)
    ).map(lambda s: Subscription(s.filter, s.qos) if s.filter.startswith("$share/") else s)
    granted = reasons(PacketType.SUBACK) if version == 5 else st.sampled_from([ReasonCode(c) for c in (0, 1, 2, 0x80)])
    removed = st.lists(reasons(PacketType.UNSUBACK), max_size=4) if version == 5 else st.just([])
    found = {
        "connect": connects(version),
        "connack": connacks(version),
        "publish": publishes(version),
        "puback": acknowledgements(Puback, PacketType.PUBACK, version),
        "pubrec": acknowledgements(Pubrec, PacketType.PUBREC, version),
        "pubrel": acknowledgements(Pubrel, PacketType.PUBREL, version),
        "pubcomp": acknowledgements(Pubcomp, PacketType.PUBCOMP, version),
        "subscribe": st.builds(
            Subscribe,
            packet_id,
            st.lists(subscriptions, min_size=1, max_size=3),
            properties(PacketType.SUBSCRIBE, version),
        ),
        "suback": st.builds(Suback, packet_id, st.lists(granted, max_size=4), properties(PacketType.SUBACK, version)),
        "unsubscribe": st.builds(
            Unsubscribe,
            packet_id,
            st.lists(topic_filter, min_size=1, max_size=3),
            properties(PacketType.UNSUBSCRIBE, version),
        ),
        "unsuback": st.builds(Unsuback, packet_id, removed, properties(PacketType.UNSUBACK, version)),
        "pingreq": st.just(Pingreq()),
        "pingresp": st.just(Pingresp()),
        "disconnect": st.just(Disconnect()),
    }
    if version == 5:
        found["disconnect"] = st.builds(
            Disconnect, reasons(PacketType.DISCONNECT), properties(PacketType.DISCONNECT, version)
        )
        found["auth"] = st.builds(Auth, reasons(PacketType.AUTH), properties(PacketType.AUTH, version))
    return found


PACKETS = {version: packets_of(version) for version in VERSIONS}
STREAMS = {version: st.lists(st.one_of(*PACKETS[version].values()), min_size=1, max_size=4) for version in VERSIONS}
CASES = [pytest.param(version, name, id=f"v{version}-{name}") for version in VERSIONS for name in PACKETS[version]]
versioned = pytest.mark.parametrize("version", VERSIONS)


def encode_all(packets: list[Packet], version: int) -> bytes:
    return b"".join(encode(packet, version) for packet in packets)


@pytest.mark.parametrize(("version", "name"), CASES)
def test_round_trip(version: int, name: str) -> None:
    """G11: every packet of both versions is decoded to what was encoded."""

    @BASE_SETTINGS
    @given(PACKETS[version][name])
    def check(packet: Packet) -> None:
        decoded = Decoder(MAX_SIZE, version).feed(encode(packet, version))
        assert decoded == [packet]
        assert type(decoded[0]) is type(packet)

    check()


@versioned
def test_any_cut_gives_the_same_packets(version: int) -> None:
    """G11: byte by byte, in two parts, as bytes or in a reused buffer: a bearer may cut the stream anywhere."""

    @BASE_SETTINGS
    @given(STREAMS[version], st.integers(1, 40))
    def check(packets: list[Packet], size: int) -> None:
        stream = encode_all(packets, version)
        by_byte, by_part = Decoder(MAX_SIZE, version), Decoder(MAX_SIZE, version)
        assert [p for at in range(len(stream)) for p in by_byte.feed(stream[at : at + 1])] == packets
        buffer = bytearray(size)
        found = []
        for at in range(0, len(stream), size):
            part = stream[at : at + size]
            buffer[: len(part)] = part
            found += by_part.feed(memoryview(buffer)[: len(part)])
        assert found == packets

    check()


@versioned
def test_every_truncation_gives_only_the_whole_packets(version: int) -> None:
    """A stream that ends within a packet gives the packets before it, no exception."""

    @BASE_SETTINGS
    @given(st.one_of(*PACKETS[version].values()))
    def check(packet: Packet) -> None:
        data = encode(packet, version)
        first = encode(Pingreq(), version)
        for length in range(len(data)):
            assert Decoder(MAX_SIZE, version).feed(data[:length]) == []
            assert Decoder(MAX_SIZE, version).feed(first + data[:length]) == [Pingreq()]

    check()


@versioned
def test_mutations_raise_nothing_but_remote_protocol_error(version: int) -> None:
    """Broken bytes either decode to packets that can be encoded again to the same, or are the peer's fault."""

    @settings(BASE_SETTINGS, max_examples=examples(300))
    @given(STREAMS[version], st.data())
    def check(packets: list[Packet], data: st.DataObject) -> None:
        stream = bytearray(encode_all(packets, version))
        for _ in range(data.draw(st.integers(1, 3))):
            at = data.draw(st.integers(0, len(stream) - 1))
            stream[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2))
            stream = stream or bytearray(b"\0")
        decode_broken(bytes(stream), version)

    check()


@settings(BASE_SETTINGS, max_examples=examples(300))
@given(st.binary(max_size=60), st.sampled_from([None, 4, 5]))
def test_noise_raises_nothing_but_remote_protocol_error(noise: bytes, version: int | None) -> None:
    """Random bytes, also where CONNECT should stand."""
    decode_broken(noise, version)
    decode_broken(b"\x10" + bytes((len(noise) + 7,)) + b"\0\4MQTT\5" + noise, None)


def decode_broken(stream: bytes, version: int | None) -> None:
    decoder = Decoder(MAX_SIZE, version)
    try:
        packets = decoder.feed(stream)
    except RemoteProtocolError:
        packets = []
    for packet in packets:
        told = packet.version if isinstance(packet, Connect) else decoder.version
        assert told is not None
        assert Decoder(MAX_SIZE, told).feed(encode(packet, told)) == [packet]


def test_packets_before_a_fault_are_handed_out_and_the_fault_stays() -> None:
    """The good packets come first; the error can be seen at once and is raised by every later call."""
    decoder = Decoder(MAX_SIZE, 5)
    good = Publish("a", b"1")
    assert decoder.feed(encode(good, 5) + b"\x00\x00" + encode(good, 5)) == [good]
    assert decoder.error is not None
    for _ in range(2):
        with pytest.raises(RemoteProtocolError) as raised:
            decoder.feed(b"")
        assert raised.value is decoder.error
        assert raised.value.reason is ReasonCode.MALFORMED_PACKET


@versioned
@pytest.mark.parametrize("size", [0, 1, 100, 120, 128, 16_370, 16_384, 70_000, 2_097_152])
@pytest.mark.parametrize("level", [0, 1, 2])
def test_hot_path_publish_is_the_same_as_the_general_one(version: int, size: int, level: int) -> None:
    """encode_publish and encode agree at every width of the remaining length."""
    found = {"message_expiry_interval": 5} if version == 5 else None
    packet = Publish("a/é", bytes(size), level, True, level > 0, 9 if level else 0, found)
    section = encode_properties(found, PacketType.PUBLISH) if version == 5 else None
    data = encode_publish("a/é".encode(), bytes(size), level, True, level > 0, packet.packet_id, section)
    assert data == encode(packet, version)
    assert Decoder(1 << 24, version).feed(data) == [packet]


@versioned
def test_hot_path_acknowledgements_are_the_same_as_the_general_ones(version: int) -> None:
    """The four-byte acknowledgements mean success in both versions."""
    assert encoding.encode_puback(513) == encode(Puback(513), version)
    assert encoding.encode_pubrec(513) == encode(Pubrec(513), version)
    assert encoding.encode_pubrel(513) == encode(Pubrel(513), version)
    assert encoding.encode_pubcomp(513) == encode(Pubcomp(513), version)
    assert encode(Pingreq(), version) == encoding.PINGREQ
    assert encode(Pingresp(), version) == encoding.PINGRESP


@pytest.mark.parametrize(
    ("packet", "version"),
    [
        pytest.param(Puback(0), 5, id="packet-id-0"),
        pytest.param(Publish("a", qos=1), 4, id="publish-without-packet-id"),
        pytest.param(Publish("a", qos=3, packet_id=1), 5, id="qos-3"),
        pytest.param(Publish("a", dup=True), 5, id="dup-at-qos-0"),
        pytest.param(Publish("a\0"), 5, id="nul"),
        pytest.param(Publish("\ud800"), 5, id="surrogate"),
        pytest.param(Publish("a" * 65_536), 5, id="long-topic"),
        pytest.param(Publish("a", properties={"server_keep_alive": 1}), 5, id="property-of-another-packet"),
        pytest.param(Publish("a", properties={"no_such": 1}), 5, id="unknown-property"),
        pytest.param(Publish("a", properties={"topic_alias": 0}), 5, id="alias-0"),
        pytest.param(Publish("a", properties={"topic_alias": 65_536}), 5, id="alias-too-large"),
        pytest.param(Publish("a", properties={"content_type": b"x"}), 5, id="property-type"),
        pytest.param(Connect(keep_alive=65_536), 5, id="keep-alive-too-large"),
        pytest.param(Connect(version=5), 4, id="two-versions"),
        pytest.param(Connect(version=4, password=b"x"), 4, id="password-alone"),
        pytest.param(Connack(False, ReasonCode.PACKET_TOO_LARGE), 4, id="no-return-code"),
        pytest.param(Puback(1, ReasonCode.BANNED), 5, id="reason-of-another-packet"),
        pytest.param(Subscribe(1, [Subscription("a", retain_handling=3)]), 5, id="retain-handling-3"),
        pytest.param(Auth(), 4, id="auth-on-3.1.1"),
    ],
)
def test_what_cannot_be_encoded_is_our_bug(packet: Packet, version: int) -> None:
    """LocalProtocolError, before a byte is out."""
    with pytest.raises(LocalProtocolError):
        encode(packet, version)


def test_3_1_1_is_told_what_it_can_understand() -> None:
    """Reasons become return codes; failures of SUBACK become 0x80; properties are left out."""
    assert encode(Connack(False, ReasonCode.NOT_AUTHORIZED), 4) == b"\x20\x02\x00\x05"
    assert encode(Suback(1, [ReasonCode.GRANTED_QOS_1, ReasonCode.NOT_AUTHORIZED]), 4) == b"\x90\x04\x00\x01\x01\x80"
    assert encode(Publish("a", b"x", properties={"content_type": "t"}), 4) == b"\x30\x04\x00\x01ax"
    assert encode(Disconnect(ReasonCode.DISCONNECT_WITH_WILL_MESSAGE), 4) == b"\xe0\x00"
