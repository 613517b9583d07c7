"""The tables of the codec against an independent implementation: paho-mqtt's."""

from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties as PahoProperties
from paho.mqtt.reasoncodes import ReasonCode as PahoReasonCode

from mqtt.codes import ALLOWED_REASONS, PacketType, ReasonCode
from mqtt.properties import PROPERTIES, WILL

# paho: 0 byte, 1 two bytes, 2 four bytes, 3 variable, 4 binary, 5 string, 6 pair
PAHO_TYPES = {0: "FLAG", 1: "U16", 2: "U32", 3: "VARINT", 4: "BINARY", 5: "STRING", 6: "PAIR"}


def test_properties() -> None:
    """Identifiers, names, types and the packets that they are allowed in (MQTT 5.0, table 2-4)."""
    paho = PahoProperties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
    theirs = {}
    for name, identifier in paho.names.items():
        kind, places = paho.properties[identifier]
        theirs[identifier] = (
            name.replace(" ", "_").lower(),
            PAHO_TYPES[kind],
            {WILL if place == PacketTypes.WILLMESSAGE else place for place in places},
        )
    assert {row.identifier: (row.name, row.kind.name, set(row.places)) for row in PROPERTIES} == theirs


def test_reason_codes() -> None:
    """Which reason code may stand in which packet (MQTT 5.0, table 2-6)."""
    names = PahoReasonCode(PacketTypes.CONNACK).names
    theirs: dict[int, set[int]] = {
        kind: {code for code in names for packets in names[code].values() if kind in packets} for kind in PacketType
    }
    theirs[PacketType.CONNACK].add(ReasonCode.PAYLOAD_FORMAT_INVALID)  # of the will: 3.2.2.2 has it, paho has not
    for kind, allowed in ALLOWED_REASONS.items():
        assert set(allowed) == theirs[PacketType(kind)], PacketType(kind).name
