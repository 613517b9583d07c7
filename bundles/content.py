"""What a sealed payload holds: the message as its application wrote it, with the properties that MQTT gives it."""

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from bundles.errors import FormatError
from schemas.undecodable import UNDECODABLE

PROPERTIES_MAX: Final = 1_000
"""User properties of one message."""

Text = Annotated[str, Meta(max_length=65_535)]


class Content(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A message. Of an envelope, the user properties are those of :mod:`edge.agent.envelope`."""

    payload: bytes
    content_type: Text = ""
    user_properties: Annotated[list[tuple[Text, Text]], Meta(max_length=PROPERTIES_MAX)] = []
    retain: bool = False
    response_topic: Text = ""
    correlation_data: bytes = b""


_decoder: Final = msgspec.msgpack.Decoder(Content)
_encoder: Final = msgspec.msgpack.Encoder()


def encode(content: Content) -> bytes:
    """The content as bytes (MessagePack)."""
    return _encoder.encode(content)


def decode(raw: bytes) -> Content:
    """The content in `raw`. Raises FormatError."""
    try:
        return _decoder.decode(raw)
    except UNDECODABLE as error:
        raise FormatError(f"the content of a bundle is malformed: {error}") from error
