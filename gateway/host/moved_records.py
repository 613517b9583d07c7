"""What two gateways of a machine say to one another when clients' sockets pass between them (R5). Pure.

The former home of a shard sends :class:`Offer` with as many sockets as clients, in the same order; the next one answers
each with :class:`Taken`. Frames and states of clients begin with a version. What is of another version, or malformed,
is refused: its client is disconnected, and comes back as after any other loss.
"""

import math
from typing import Annotated, Final, TypeVar

import msgspec
from msgspec import Meta

from gateway.shard.session_state import SessionState
from gateway.sockets.channel import FRAME_BYTES, FRAME_SOCKETS
from mqtt.connection_state import ConnectionState, OutboundAliasState
from mqtt.topics import is_topic_name
from schemas.errors import RecordError
from schemas.undecodable import UNDECODABLE

VERSION: Final = 1
CLIENT_BYTES: Final = FRAME_BYTES - 256
"""Most bytes of one client's state: a frame takes it."""

_PREFIX: Final = bytes([VERSION])

T = TypeVar("T")
Number = Annotated[int, Meta(ge=0, le=(1 << 53) - 1)]


class ClientState(msgspec.Struct, frozen=True):
    """All that a connection is. `user`, `until`: whom the former home knows the client to be, and until when
    (:class:`gateway.shard.rules.ClientRules`); `peer`, `uses_tls`, `certificate`: see
    :class:`gateway.host.connection.Transport`."""

    connection: ConnectionState
    aliases: OutboundAliasState
    session: SessionState
    user: str
    until: float
    peer: str
    uses_tls: bool
    certificate: str | None


class Offer(msgspec.Struct, frozen=True, tag="offer"):
    """Clients of a shard, which the sender has had in `epoch`, each as by `encode_client`; `number` is for the
    answer."""

    shard: Number
    epoch: Number
    number: Number
    clients: Annotated[list[bytes], Meta(min_length=1, max_length=FRAME_SOCKETS)]


class Taken(msgspec.Struct, frozen=True, tag="taken"):
    """The sockets of an offer are here, except those `refused`, by their position."""

    number: Number
    refused: list[Number] = []


_encode = msgspec.msgpack.Encoder().encode
_clients = msgspec.msgpack.Decoder(ClientState)
_frames: msgspec.msgpack.Decoder[Offer | Taken] = msgspec.msgpack.Decoder(Offer | Taken)


def encode_client(state: ClientState) -> bytes:
    return _PREFIX + _encode(state)


def decode_client(raw: bytes) -> ClientState:
    """Raises RecordError."""
    state = _decode(_clients, raw)
    topics = [*state.connection.aliases.values(), *state.aliases.topics]
    if not all(is_topic_name(topic) for topic in topics):
        raise RecordError("a topic alias stands for no topic name")
    if math.isnan(state.until) or not math.isfinite(state.connection.idle_s):
        raise RecordError("a time is not a number")
    return state


def encode_frame(frame: Offer | Taken) -> bytes:
    return _PREFIX + _encode(frame)


def decode_frame(raw: bytes) -> Offer | Taken:
    """Raises RecordError."""
    return _decode(_frames, raw)


def _decode(decoder: msgspec.msgpack.Decoder[T], raw: bytes) -> T:
    if raw[:1] != _PREFIX:
        raise RecordError("a record about moved clients is of a version that is not known")
    try:
        return decoder.decode(raw[1:])
    except UNDECODABLE as error:
        raise RecordError(f"a record about moved clients is malformed: {error}") from error
