"""A server that breaks the protocol, and how a client connection ends."""

import pytest

from mqtt.client_events import Closed, EndedBy
from mqtt.codes import ReasonCode
from mqtt.errors import LocalProtocolError
from mqtt.packets import (
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
)
from tests.unit.mqtt.client_script import Script
from tests.unit.mqtt.mqtt_client import versioned

# -- what a server must not do -----------------------------------------------------------------------------------------


@versioned
@pytest.mark.parametrize(
    "packet",
    [
        Puback(9),
        Pubcomp(1),
        Suback(9, [ReasonCode.SUCCESS]),
        Unsuback(1),
        Pubrec(1),
        Connack(),
        Subscribe(1, [Subscription("a")]),
        Pingreq(),
        Connect("x"),
    ],
)
def test_packets_a_server_must_not_send(version: int, packet: Packet) -> None:
    """Packet id 1 is a message of QoS 1 that waits for PUBACK, nothing waits for anything on 9."""
    server = Script(version).connected()
    assert server.client.publish("t", b"", 1) == 1
    server.sent()
    if isinstance(packet, Connect):
        packet = Connect("x", version)
    assert server.fault(packet).reason is ReasonCode.PROTOCOL_ERROR
    assert len(server.session.unacknowledged) == 1


def test_auth_and_disconnect_where_they_are_not_allowed() -> None:
    Script().connected().fault(Auth())
    Script(4).connected().fault(Disconnect())


def test_suback_with_too_few_reason_codes() -> None:
    server = Script().connected()
    packet_id = server.client.subscribe([Subscription("a"), Subscription("b")])
    server.sent()
    server.fault(Suback(packet_id, [ReasonCode.SUCCESS]))


def test_more_unacknowledged_messages_than_allowed() -> None:
    """[MQTT-3.3.4-9]: what came before is still the application's."""
    server = Script(properties={"receive_maximum": 2}).connected()
    events = server.say(*(Publish("t", b"", 1, packet_id=number) for number in (1, 2, 3)))
    assert [type(event) for event in events] == [Publish, Publish, Closed]
    assert events[-1].reason is ReasonCode.RECEIVE_MAXIMUM_EXCEEDED


def test_aliases_the_client_did_not_allow() -> None:
    server = Script().connected()
    assert server.fault(Publish("t", properties={"topic_alias": 1})).reason is ReasonCode.TOPIC_ALIAS_INVALID


def test_a_packet_larger_than_asked_for() -> None:
    server = Script(properties={"maximum_packet_size": 30}).connected()
    assert server.fault(Publish("t", b"x" * 40)).reason is ReasonCode.PACKET_TOO_LARGE


def test_pubrec_for_an_unknown_packet_id_is_answered() -> None:
    """4.3.3: no fault, as it happens where a session is recovered."""
    server = Script().connected()
    assert server.say(Pubrec(5)) == []
    assert server.sent() == [Pubrel(5, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND)]
    assert server.say(Pubcomp(5, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND)) == []
    assert server.say(Pubrel(6)) == []
    assert server.sent() == [Pubcomp(6, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND)]


# -- the end -----------------------------------------------------------------------------------------------------------


def test_the_servers_disconnect_is_an_event_with_its_reason() -> None:
    server = Script().connected()
    packet = Disconnect(ReasonCode.ADMINISTRATIVE_ACTION, {"reason_string": "kicked"})
    said, closed = server.say(packet)
    assert said == packet
    assert (closed.by, closed.reason) == (EndedBy.SERVER, ReasonCode.ADMINISTRATIVE_ACTION)
    assert "kicked" in closed.detail
    assert server.say(Publish("t")) == []


@versioned
def test_disconnect_and_what_comes_after_it(version: int) -> None:
    server = Script(version).connected()
    assert server.client.disconnect().by is EndedBy.CLIENT
    assert server.sent() == [Disconnect()]
    assert server.client.disconnect().by is EndedBy.CLIENT
    assert server.client.outgoing() == b""
    with pytest.raises(LocalProtocolError):
        server.client.publish("t", b"", 0)
    with pytest.raises(LocalProtocolError):
        server.client.subscribe([Subscription("a")])
    assert server.client.publish("t", b"", 1) == 1
    assert server.client.outgoing() == b""


def test_disconnect_with_the_will_and_a_longer_session() -> None:
    server = Script(properties={"session_expiry_interval": 5}).connected()
    server.client.disconnect(ReasonCode.DISCONNECT_WITH_WILL_MESSAGE, {"session_expiry_interval": 9})
    assert server.sent() == [Disconnect(ReasonCode.DISCONNECT_WITH_WILL_MESSAGE, {"session_expiry_interval": 9})]
    with pytest.raises(LocalProtocolError, match="session expiry"):
        Script().connected().client.disconnect(properties={"session_expiry_interval": 9})
