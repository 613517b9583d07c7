"""The OpenAPI 3.2 description of the HTTP bearer, served as `/openapi.json`; a test checks the gateway against it.

The document is the file `openapi.json`. A setting in braces, such as `{http.idempotency_s}`, stands for its value.
"""

import re
from importlib.resources import files
from operator import attrgetter
from typing import Any

import msgspec

from schemas.settings import GatewaySettings

_SETTING = re.compile(r"\{([a-z_]+\.[a-z_]+)\}")


def openapi(settings: GatewaySettings) -> dict[str, Any]:
    """The document, with the limits of these settings."""
    text = files("gateway.http").joinpath("openapi.json").read_text(encoding="utf-8")
    filled = _SETTING.sub(lambda setting: format(attrgetter(setting[1])(settings), ".12g"), text)
    document: dict[str, Any] = msgspec.json.decode(filled)
    return document
