"""Who sent a message: the column `origin` of the ledger."""

from typing import Literal

Origin = Literal["client", "http", "will", "platform"]
"""An MQTT client by PUBLISH; a program by HTTP POST; a gateway on behalf of a client that was lost (its will); or the
platform itself, which reports on `$presence/…` which clients connect and disconnect, writes fences to `$cluster/…`,
sends receipts to inboxes, and tells senders that the receiver of a conversation is gone.
"""

PRESENCE_ROOT = "$presence"
CLUSTER_ROOT = "$cluster"
"""The first levels of the platform's own topics, and the senders of their messages. Nobody else may publish there."""

_OWN = (f"{PRESENCE_ROOT}/", f"{CLUSTER_ROOT}/")

WILL_FLAG = "w"
HTTP_FLAG = "h"
PLATFORM_FLAG = "p"
"""In `flags` of the envelope (:class:`schemas.envelope.Meta`): the message is a will, was posted over HTTP, or is the
platform's own to a topic of others."""

SHARES_SENDER = "$share"
"""The sender of what homes of share groups publish (R6)."""


def origin_of(topic: str, flags: str) -> Origin:
    """Who sent a message to `topic` with these `flags`; :func:`pipelines.origin.origin_of` is the same for Spark."""
    if topic.startswith(_OWN) or PLATFORM_FLAG in flags:
        return "platform"
    return "will" if WILL_FLAG in flags else "http" if HTTP_FLAG in flags else "client"
