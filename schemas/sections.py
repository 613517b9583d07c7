"""What the tables of the configuration are made of: their base, and the types of common values."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

OFF: Literal["off"] = "off"
"""The port of a listener that does not listen."""

Positive = Annotated[int, Meta(ge=1)]
Natural = Annotated[int, Meta(ge=0)]
Port = Annotated[int, Meta(ge=0, le=65535)]
ListenerPort = Port | Annotated[str, Meta(pattern=f"^{OFF}$(?# or a port: an int from 0 to 65535)")]
Seconds = Annotated[float, Meta(gt=0)]
NotNegative = Annotated[float, Meta(ge=0)]


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all tables of the configuration."""
