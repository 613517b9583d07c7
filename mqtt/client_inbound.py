"""The receiving half of a client's session: QoS 1 and 2 messages until the application has accepted them.

PUBACK and PUBREC are made by :meth:`InboundMessages.acknowledge` alone, in the order in which the messages came
[MQTT-4.6.0-2, -3]. A message that the application was given on an earlier connection and has not accepted is not given
to it again when the server sends it again: the application still has it, and may accept it at any time.
"""

from collections import deque
from typing import Final

from mqtt.codes import ReasonCode
from mqtt.packets import Puback, Publish, Pubrec
from mqtt.wire import protocol_error

_FAILURE: Final = ReasonCode.UNSPECIFIED_ERROR


class InboundMessages:
    """`received` are the packet ids of QoS 2 messages that were accepted, until their PUBREL: to be kept on disk."""

    __slots__ = ("_accepted", "_earlier", "_forgotten", "_given", "_order", "received")

    def __init__(self) -> None:
        self.received: set[int] = set()
        self._given: dict[int, Publish] = {}  # on this connection: the application has them, the server no answer
        self._order: tuple[deque[int], ...] = (deque(), deque(), deque())  # their packet ids by QoS, as they came
        self._accepted: dict[int, ReasonCode] = {}  # of those given: accepted, but an earlier one is not
        self._forgotten: set[int] = set()  # of those given: the application has them no more
        self._earlier: dict[int, Publish] = {}  # given on an earlier connection, and not yet sent again

    # -- one connection ------------------------------------------------------------------------------------------------

    def take(self, packet: Publish) -> tuple[bool, list[Puback | Pubrec]]:
        """Whether a PUBLISH of QoS 1 or 2 is new to the application, and what is to be answered already.

        RemoteProtocolError if its packet id is in use for another message.
        """
        packet_id, qos = packet.packet_id, packet.qos
        if packet_id in self.received:
            if qos == 2:
                return False, [Pubrec(packet_id)]
            raise protocol_error(f"PUBLISH with packet id {packet_id}, which waits for PUBREL")
        if packet_id in self._given:
            if packet.dup and self._given[packet_id].qos == qos:
                return False, []
            raise protocol_error(f"PUBLISH with packet id {packet_id}, which waits for an answer")
        before = self._earlier.pop(packet_id, None)
        is_same = before is not None and before.qos == qos and (qos == 2 or packet.dup)
        if before is None or not is_same:
            self._accepted.pop(packet_id, None)
            before = packet
        self._given[packet_id] = before
        self._order[qos].append(packet_id)
        return not is_same, self._answers(qos) if is_same else []

    def released(self, packet_id: int) -> bool:
        """PUBREL has come: whether its message was accepted here; answer with PUBCOMP either way (4.3.3)."""
        if packet_id in self._given:
            raise protocol_error(f"PUBREL for packet id {packet_id} before its PUBREC")
        if packet_id not in self.received:
            return False
        self.received.remove(packet_id)
        return True

    def end(self) -> None:
        """The connection is over: what was not answered comes again, if the server keeps the session."""
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
        """The application has accepted (or, with a failure, refuses) a message it was given: the answers to send now.

        Without effect on a message of a session that is lost, and on one that is acknowledged already.
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
        """The application has lost a message it was given, and is given it again when the server sends it again, on the
        next connection."""
        if self._given.get(packet.packet_id) is packet:
            self._forgotten.add(packet.packet_id)
        elif self._earlier.get(packet.packet_id) is packet:
            del self._earlier[packet.packet_id]

    def accepted_ids(self) -> list[int]:
        """The packet ids of QoS 2 that have been accepted and wait for PUBREL, as they are to be kept on disk."""
        held = (packet_id for packet_id, reason in self._accepted.items() if reason < _FAILURE)
        return sorted(self.received.union(i for i in held if i in self._given and self._given[i].qos == 2))

    def lose(self) -> list[Publish]:
        """The server has lost the session: returns what the application had not acknowledged."""
        lost = [packet for packet_id, packet in self._earlier.items() if packet_id not in self._accepted]
        self._earlier.clear()
        self._accepted.clear()
        self.received.clear()
        return lost

    def _answers(self, qos: int) -> list[Puback | Pubrec]:
        """Those that are accepted and have no earlier one that is not."""
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
