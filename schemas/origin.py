"""Who has sent a message: the column `origin` of the ledger."""

from typing import Literal

Origin = Literal["client", "http", "will", "platform"]
"""An MQTT client by PUBLISH; a program by a POST; a gateway in place of a client that was lost (its will); or the
platform itself, which tells on `$presence/…` who comes and goes."""

PRESENCE_ROOT = "$presence"
"""Begins the topics of the platform's own messages, and is their sender. Nobody else may publish there."""

WILL_FLAG = "w"
HTTP_FLAG = "h"
"""In `flags` of the envelope (:class:`schemas.envelope.Meta`): the message is a will, or was posted over HTTP."""


def origin_of(topic: str, flags: str) -> Origin:
    """Who has sent a message to `topic` with these `flags`; :func:`pipelines.origin.origin_of` for Spark."""
    if topic.startswith(f"{PRESENCE_ROOT}/"):
        return "platform"
    return "will" if WILL_FLAG in flags else "http" if HTTP_FLAG in flags else "client"
