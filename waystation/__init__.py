"""Waystation's client library: `from waystation import Client`.

Does: re-export what applications use; docs/client.md explains it. What is for subscribers of feeds (docs/feeds.md) is
loaded when it is asked for: most devices have no use for it.
Does not: contain code of its own.
May import: `edge`, `mqtt` and `schemas`; nothing of Waystation imports this package.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from edge.client.client import Client
from edge.client.errors import (
    Attempt,
    ClientClosed,
    ClientError,
    Expired,
    LifetimeNotAllowed,
    MessageTooLarge,
    MissingPackage,
    NoReply,
    NotAccepted,
    NotReachable,
    NotReceived,
    NotSupported,
    StoreDamaged,
    StoreError,
    StoreFailed,
    StoreForeign,
    StoreFull,
    StoreInUse,
    TooManyRequests,
)
from edge.client.kafka_options import KafkaOptions
from edge.client.limits import Limits
from edge.client.message import IncomingMessage, Message, MessageState, Presence, Receipt
from edge.client.sync_client import SyncClient, SyncMessage
from edge.errors import ConnectionLost, ConnectRefused, PublishRefused, SubscribeRefused, Unreachable
from edge.link import QuicTls
from mqtt.codes import ReasonCode
from mqtt.errors import LocalProtocolError
from mqtt.packets import Subscription
from schemas.errors import WaystationError
from schemas.version import installed_version

if TYPE_CHECKING:
    from edge.feed_subscriber.errors import FeedClosed, FeedUnavailable, NotCommitted
    from edge.feed_subscriber.items import (
        Different,
        Ended,
        FeedDelivery,
        FeedItem,
        Gap,
        Lost,
        Recovered,
        Switched,
    )
    from edge.feed_subscriber.limits import FeedLimits
    from edge.feed_subscriber.subscriber import FeedSubscriber
    from edge.feed_subscriber.sync_subscriber import SyncFeedSubscriber
    from feeds.merge_settings import MergeSettings

__version__ = installed_version()

_LAZY = {
    **dict.fromkeys(("FeedClosed", "FeedUnavailable", "NotCommitted"), "edge.feed_subscriber.errors"),
    **dict.fromkeys(
        ("Different", "Ended", "FeedDelivery", "FeedItem", "Gap", "Lost", "Recovered", "Switched"),
        "edge.feed_subscriber.items",
    ),
    "FeedLimits": "edge.feed_subscriber.limits",
    "FeedSubscriber": "edge.feed_subscriber.subscriber",
    "MergeSettings": "feeds.merge_settings",
    "SyncFeedSubscriber": "edge.feed_subscriber.sync_subscriber",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_LAZY[name]), name)
    return found


__all__ = [
    "Attempt",
    "Client",
    "ClientClosed",
    "ClientError",
    "ConnectRefused",
    "ConnectionLost",
    "Different",
    "Ended",
    "Expired",
    "FeedClosed",
    "FeedDelivery",
    "FeedItem",
    "FeedLimits",
    "FeedSubscriber",
    "FeedUnavailable",
    "Gap",
    "IncomingMessage",
    "KafkaOptions",
    "LifetimeNotAllowed",
    "Limits",
    "LocalProtocolError",
    "Lost",
    "MergeSettings",
    "Message",
    "MessageState",
    "MessageTooLarge",
    "MissingPackage",
    "NoReply",
    "NotAccepted",
    "NotCommitted",
    "NotReachable",
    "NotReceived",
    "NotSupported",
    "Presence",
    "PublishRefused",
    "QuicTls",
    "ReasonCode",
    "Receipt",
    "Recovered",
    "StoreDamaged",
    "StoreError",
    "StoreFailed",
    "StoreForeign",
    "StoreFull",
    "StoreInUse",
    "SubscribeRefused",
    "Subscription",
    "Switched",
    "SyncClient",
    "SyncFeedSubscriber",
    "SyncMessage",
    "TooManyRequests",
    "Unreachable",
    "WaystationError",
    "__version__",
]
