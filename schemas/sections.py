"""The building blocks of the configuration's tables: their base, and the types of common values.

Error messages show no patterns: where a pattern defines what is allowed, `description` says it in words.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

OFF: Literal["off"] = "off"
"""The port of a listener that is turned off."""

Positive = Annotated[int, Meta(ge=1)]
Natural = Annotated[int, Meta(ge=0)]
Port = Annotated[int, Meta(ge=0, le=65535)]
ListenerPort = Port | Literal["off"]
Seconds = Annotated[float, Meta(gt=0)]
NotNegative = Annotated[float, Meta(ge=0)]
NotEmpty = Annotated[str, Meta(min_length=1)]
Memory = Annotated[
    str, Meta(pattern=r"^[1-9]\d*[mg]\Z", description='a size in megabytes or gigabytes, such as "512m"')
]
"""The size of a Java heap."""


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all tables of the configuration."""
