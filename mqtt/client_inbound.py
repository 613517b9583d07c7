"""The receiving half of a client's session: QoS 1 and 2 messages until the application has accepted them.

Only :meth:`InboundMessages.acknowledge` makes PUBACK and PUBREC, in the order in which the messages arrived
[MQTT-4.6.0-2, -3]. If the server sends a message again that the application was given on an earlier connection and has
not accepted, the application does not get it twice: it still has the message and may accept it at any time.
"""

from collections import deque
from typing import Final

from mqtt.codes import ReasonCode
from mqtt.packets import Puback, Publish, Pubrec
from mqtt.wire import protocol_error

_FAILURE: Final = ReasonCode.UNSPECIFIED_ERROR


def _repeats(packet: Publish, before: Publish) -> bool:
    """Whether a PUBLISH of QoS 1 is an earlier one sent again. A server that was killed may give the packet id to
    another message, with DUP set: the application would lose it if the packet id alone counted."""
    return packet.dup and (packet.topic, packet.payload) == (before.topic, before.payload)


class InboundMessages:
    """`received` are the packet ids of accepted QoS 2 messages until their PUBREL; keep them on disk."""

    __slots__ = ("_accepted", "_earlier", "_forgotten", "_given", "_order", "received")

    def __init__(self) -> None:
        self.received: set[int] = set()
        self._given: dict[int, Publish] = {}  # on this connection: given to the application, not answered to the server
        self._order: tuple[deque[int], ...] = (deque(), deque(), deque())  # their packet ids by QoS, in arrival order
        self._accepted: dict[int, ReasonCode] = {}  # given and accepted, but an earlier one is not accepted yet
        self._forgotten: set[int] = set()  # given, but the application has lost them
        self._earlier: dict[int, Publish] = {}  # given on an earlier connection, not sent again yet

    # -- one connection ------------------------------------------------------------------------------------------------

    def take(self, packet: Publish) -> tuple[bool, list[Puback | Pubrec]]:
        """Whether a PUBLISH of QoS 1 or 2 is new to the application, and the answers to send at once.

        RemoteProtocolError if its packet id is in use for another message.
        """
        packet_id, qos = packet.packet_id, packet.qos
        if packet_id in self.received:
            if qos == 2:
                return False, [Pubrec(packet_id)]
            raise protocol_error(f"PUBLISH with packet id {packet_id}, which is in use until PUBREL")
        if packet_id in self._given:
            if packet.dup and self._given[packet_id].qos == qos:
                return False, []
            raise protocol_error(f"PUBLISH with packet id {packet_id}, which is in use until it is acknowledged")
        before = self._earlier.pop(packet_id, None)
        is_same = before is not None and before.qos == qos and (qos == 2 or _repeats(packet, before))
        if before is None or not is_same:
            self._accepted.pop(packet_id, None)
            before = packet
        self._given[packet_id] = before
        self._order[qos].append(packet_id)
        return not is_same, self._answers(qos) if is_same else []

    def released(self, packet_id: int) -> bool:
        """PUBREL has arrived; returns whether its message was accepted here. Answer with PUBCOMP either way (4.3.3)."""
        if packet_id in self._given:
            raise protocol_error(f"PUBREL for packet id {packet_id} before its PUBREC")
        if packet_id not in self.received:
            return False
        self.received.remove(packet_id)
        return True

    def end(self) -> None:
        """The connection has ended: unanswered messages arrive again if the server keeps the session."""
        for packet_id, packet in self._given.items():
            reason = self._accepted.get(packet_id)
            if packet.qos == 2 and reason is not None and reason < _FAILURE:
                self.received.add(packet_id)
                del self._accepted[packet_id]
            elif packet_id not in self._forgotten:
                self._earlier[packet_id] = packet
        self._given.clear()
        self._forgotten.clear()
        for order in self._order:
            order.clear()

    # -- the application's part ----------------------------------------------------------------------------------------

    def acknowledge(self, packet: Publish, reason: ReasonCode) -> list[Puback | Pubrec]:
        """The application has accepted (or, with a failure, refuses) a message it was given; returns the answers to
        send now.

        Has no effect if the message's session is lost or the message is already acknowledged.
        """
        packet_id = packet.packet_id
        if self._given.get(packet_id) is packet:
            order = self._order[packet.qos]
            if order[0] == packet_id and not self._accepted:  # the usual case
                order.popleft()
                return [self._answer(packet_id, reason)]
            self._accepted.setdefault(packet_id, reason)
            return self._answers(packet.qos)
        if self._earlier.get(packet_id) is packet:
            if packet.qos == 2 and reason < _FAILURE:
                del self._earlier[packet_id]
                self.received.add(packet_id)
            else:
                self._accepted.setdefault(packet_id, reason)
        return []

    def forget(self, packet: Publish) -> None:
        """The application has lost a message it was given; it gets the message again with the next connection."""
        if self._given.get(packet.packet_id) is packet:
            self._forgotten.add(packet.packet_id)
        elif self._earlier.get(packet.packet_id) is packet:
            del self._earlier[packet.packet_id]

    def accepted_ids(self) -> list[int]:
        """The packet ids of accepted QoS 2 messages that wait for PUBREL, to be kept on disk."""
        held = (packet_id for packet_id, reason in self._accepted.items() if reason < _FAILURE)
        return sorted(self.received.union(i for i in held if i in self._given and self._given[i].qos == 2))

    def lose(self) -> list[Publish]:
        """The server has lost the session; returns the messages that the application had not acknowledged."""
        lost = [packet for packet_id, packet in self._earlier.items() if packet_id not in self._accepted]
        self._earlier.clear()
        self._accepted.clear()
        self.received.clear()
        return lost

    def _answers(self, qos: int) -> list[Puback | Pubrec]:
        """Answers for accepted messages that follow no unaccepted one."""
        order, answers = self._order[qos], []
        while order and (reason := self._accepted.pop(order[0], None)) is not None:
            answers.append(self._answer(order.popleft(), reason))
        return answers

    def _answer(self, packet_id: int, reason: ReasonCode) -> Puback | Pubrec:
        if self._given.pop(packet_id).qos == 1:
            return Puback(packet_id, reason)
        if reason < _FAILURE:
            self.received.add(packet_id)
        return Pubrec(packet_id, reason)
