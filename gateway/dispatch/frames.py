"""Frames between the dispatcher of a machine and its gateways, and between a dispatcher and its successor (R1). Pure.

Each has a version, a kind and a number, and some come with sockets.

| kind      | from       | to         | sockets                | says                                            |
|-----------|------------|------------|------------------------|-------------------------------------------------|
| hand      | dispatcher | gateway    | of clients, never read | batch `number` is yours if you say so           |
| taken     | gateway    | dispatcher |                        | batch `number` is mine; I have not read from it |
| ask       | successor  | dispatcher |                        | pass me your listening sockets                  |
| listening | dispatcher | successor  | listening              | I go on until you say that you accept from them |
| accepting | successor  | dispatcher |                        | I accept: accept no more                        |

Whoever does not want a batch says nothing and ends the channel.
"""

import struct
from typing import Final, Literal, NamedTuple, get_args

from gateway.errors import SocketsError

Kind = Literal["hand", "taken", "ask", "listening", "accepting"]

DISPATCHER: Final = "dispatcher"
"""The name of the dispatcher in the directory of sockets."""

_VERSION: Final = 1
_KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
_FRAME: Final = struct.Struct(">BBQ")


class Frame(NamedTuple):
    kind: Kind
    number: int = 0


def gateway_name(gateway: str) -> str:
    """The name in the directory of sockets under which a gateway takes clients of the dispatcher."""
    return f"gateway/{gateway}"


def encode_frame(frame: Frame) -> bytes:
    return _FRAME.pack(_VERSION, _KINDS.index(frame.kind), frame.number)


def decode_frame(data: bytes) -> Frame:
    """Raises SocketsError for what is no frame of this version. Later versions may be longer."""
    if len(data) < _FRAME.size:
        raise SocketsError(f"a frame of {len(data)} bytes is too short")
    version, kind, number = _FRAME.unpack_from(data)
    if version != _VERSION or kind >= len(_KINDS):
        raise SocketsError(f"a frame of version {version} and kind {kind} is not known")
    return Frame(_KINDS[kind], number)
