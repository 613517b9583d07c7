"""What a server learns of a connection, and which packets each side may send."""

from typing import Final, TypeAlias

import msgspec

from mqtt.codes import ReasonCode
from mqtt.packets import (
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
    Unsuback,
    Unsubscribe,
)

# What a connected client may send, and what the session may send to it (the connection sends the rest itself).
RECEIVABLE: Final = frozenset({Publish, Puback, Pubrec, Pubrel, Pubcomp, Subscribe, Unsubscribe, Pingreq, Disconnect})
SENDABLE: Final = frozenset({Publish, Puback, Pubrec, Pubrel, Pubcomp, Suback, Unsuback})


class Closed(msgspec.Struct, gc=False):
    """The end of a connection. `send_will`: publish the will (after its delay); `clean`: the client sent DISCONNECT."""

    reason: ReasonCode
    detail: str
    send_will: bool
    clean: bool


Event: TypeAlias = Packet | Closed
