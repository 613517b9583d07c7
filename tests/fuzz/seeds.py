"""Where fuzzing begins: whole packets of every kind in both versions, and plausible programs."""

from mqtt.codes import ReasonCode
from mqtt.encode import encode
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
from tests.fuzz.mutate import split
from tests.fuzz.programs import Kind, Step, write

_TEXTS: Properties = {"reason_string": "why", "user_property": [("k", "v"), ("k", "w")]}
_MESSAGE: Properties = {
    "payload_format_indicator": 1,
    "message_expiry_interval": 60,
    "content_type": "text",
    "response_topic": "r/t",
    "correlation_data": b"\0\1",
    "user_property": [("k", "v")],
}
_WILL = Will("w/t", b"gone", 1, True)
_WILL_5 = Will("w/t", b"gone", 2, False, {"will_delay_interval": 5, **_MESSAGE})
_ASKED: Properties = {
    "session_expiry_interval": 100,
    "receive_maximum": 3,
    "maximum_packet_size": 200,
    "topic_alias_maximum": 5,
    "request_response_information": 1,
    "request_problem_information": 0,
    "user_property": [("k", "v")],
}

VERSION_4: tuple[Packet, ...] = (
    Connect("c", 4, True, 10),
    Connect("c", 4, False, 10, "user", b"secret", _WILL),
    Connack(True),
    Publish("a/b", b"zero"),
    Publish("a/b", b"one", 1, True, True, 1),
    Publish("a/b", b"two", 2, packet_id=2),
    Puback(7),
    Pubrec(8),
    Pubrel(2),
    Pubcomp(8),
    Subscribe(3, [Subscription("a/+", 1), Subscription("#", 2)]),
    Suback(3, [ReasonCode.GRANTED_QOS_1, ReasonCode.UNSPECIFIED_ERROR]),
    Unsubscribe(4, ["a/+", "#"]),
    Unsuback(4),
    Pingreq(),
    Pingresp(),
    Disconnect(),
)
VERSION_5: tuple[Packet, ...] = (
    Connect("c", 5, True, 10),
    Connect("c", 5, False, 10, "user", b"secret", _WILL_5, _ASKED),
    Connect("", 5, True, 0, properties={"authentication_method": "m", "authentication_data": b"d"}),
    Connack(False, ReasonCode.SUCCESS, {"receive_maximum": 5, "assigned_client_identifier": "x", **_TEXTS}),
    Publish("a/b", b"zero"),
    Publish("a/b", b"one", 1, True, True, 1, dict(_MESSAGE)),
    Publish("a/b", b"two", 2, packet_id=2, properties={"topic_alias": 1}),
    Publish("", b"alias", 1, packet_id=3, properties={"topic_alias": 1}),
    Publish("a", b"", 0, properties={"subscription_identifier": [1, 128]}),
    Puback(7),
    Puback(7, ReasonCode.NO_MATCHING_SUBSCRIBERS, dict(_TEXTS)),
    Pubrec(8, ReasonCode.UNSPECIFIED_ERROR, dict(_TEXTS)),
    Pubrel(2, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND, dict(_TEXTS)),
    Pubcomp(8),
    Subscribe(
        3, [Subscription("a/+", 1, True, True, 2), Subscription("$share/g/a", 2)], {"subscription_identifier": [9]}
    ),
    Suback(3, [ReasonCode.GRANTED_QOS_1, ReasonCode.QUOTA_EXCEEDED], dict(_TEXTS)),
    Unsubscribe(4, ["a/+", "#"], {"user_property": [("k", "v")]}),
    Unsuback(4, [ReasonCode.SUCCESS, ReasonCode.NO_SUBSCRIPTION_EXISTED], dict(_TEXTS)),
    Pingreq(),
    Pingresp(),
    Disconnect(),
    Disconnect(ReasonCode.DISCONNECT_WITH_WILL_MESSAGE, {"session_expiry_interval": 5, **_TEXTS}),
    Auth(ReasonCode.CONTINUE_AUTHENTICATION, {"authentication_method": "m", "authentication_data": b"d"}),
)

PACKETS: dict[int, list[bytes]] = {
    4: [encode(packet, 4) for packet in VERSION_4],
    5: [encode(packet, 5) for packet in VERSION_5],
}
PIECES: list[tuple[int, bytes]] = [piece for packets in PACKETS.values() for data in packets for piece in split(data)]
"""(first byte, body) of every packet, for a mutator to take from."""


def codec_seeds() -> dict[str, bytes]:
    """One packet of each kind, and all of a version in one stream."""
    found = {}
    for version, chooser in ((4, 1), (5, 2)):
        packets = PACKETS[version]
        found |= {f"v{version}-{number:02}": bytes((chooser, 2)) + data for number, data in enumerate(packets)}
        found[f"v{version}-all"] = bytes((chooser, 6)) + b"".join(packets)
        found[f"v{version}-server"] = bytes((0, 3)) + packets[0] + packets[3]
    return found


def program_seeds() -> dict[str, bytes]:
    """A connection of each version that does a bit of everything; one refused; one that is late; one that floods."""
    found = {}
    for version, packets in PACKETS.items():
        client = [p for p in packets if p[0] >> 4 in (3, 4, 5, 6, 7, 8, 10, 12)]
        goodbye, *_ = [p for p in packets if p[0] >> 4 == 14]
        answers = [Step(Kind.SEND, bytes((number,))) for number in range(12)]
        for name, connect in (("plain", packets[0]), ("full", packets[1])):
            steps = [Step(Kind.FEED, connect), Step(Kind.ACCEPT, b"\1")]
            for packet, answer in zip(client, answers, strict=False):
                steps += (Step(Kind.FEED, packet), answer)
            found[f"v{version}-{name}"] = write(b"\x0b\7", [*steps, Step(Kind.FEED, goodbye)])
        behind = Step(Kind.FEED, packets[0] + b"".join(client[:4]))
        found[f"v{version}-behind"] = write(b"\x0f\5", [behind, Step(Kind.ACCEPT, b"\0"), Step(Kind.TICK, b"\6")])
        found[f"v{version}-flood"] = write(
            b"\x0f\5", [Step(Kind.FEED, packets[0]), Step(Kind.FEED, b"\xc0\0" * 130), Step(Kind.ACCEPT, b"\0")]
        )
        found[f"v{version}-refused"] = write(b"\0\0", [Step(Kind.FEED, packets[0]), Step(Kind.REFUSE, b"\7")])
        found[f"v{version}-lost"] = write(
            b"\0\0", [Step(Kind.FEED, packets[1]), Step(Kind.ACCEPT, b"\0"), Step(Kind.EOF, b"\0")]
        )
    found["late"] = write(b"\0\0", [Step(Kind.TICK, b"\5")])
    return found
