"""How a home reaches a client: what a host, or another bearer, has to offer it."""

from typing import Protocol

from gateway.shard.messages import Delivery, Message
from mqtt.codes import ReasonCode


class Link(Protocol):
    """A host's end of a session: how the home reaches the client. Calls never fail; a dead link ignores them."""

    @property
    def writable(self) -> bool:
        """Whether the connection takes more deliveries now; the host calls `Home.writable` when it does again."""
        ...

    def deliver(self, message: Message, delivery: Delivery) -> bool:
        """Sends PUBLISH; False if the client does not take so large a packet: at QoS 1 and 2 the host calls
        `Home.undeliverable`, afterwards."""
        ...

    def release(self, packet_id: int, reason: ReasonCode = ReasonCode.SUCCESS) -> None:
        """Sends PUBREL."""
        ...

    def answer(self, qos: int, packet_id: int, reason: ReasonCode) -> None:
        """Sends PUBACK or PUBREC for the client's PUBLISH; nothing at QoS 0."""
        ...

    def complete(self, packet_id: int, reason: ReasonCode) -> None:
        """Sends PUBCOMP."""
        ...

    def disconnect(self, reason: ReasonCode) -> None:
        """Ends the connection; the host need not detach."""
        ...
