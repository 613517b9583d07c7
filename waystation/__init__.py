"""Waystation's client library: `from waystation import Client`.

Does: re-export what applications use; docs/client.md explains it.
Does not: contain code of its own.
May import: `edge`, `mqtt` and `schemas`; nothing of Waystation imports this package.
"""

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
from edge.client.message import IncomingMessage, Message, MessageState, Presence
from edge.client.sync_client import SyncClient, SyncMessage
from edge.errors import ConnectionLost, ConnectRefused, PublishRefused, SubscribeRefused, Unreachable
from edge.link import QuicTls
from mqtt.packets import Subscription
from schemas.errors import WaystationError
from schemas.version import installed_version

__version__ = installed_version()

__all__ = [
    "Attempt",
    "Client",
    "ClientClosed",
    "ClientError",
    "ConnectRefused",
    "ConnectionLost",
    "Expired",
    "IncomingMessage",
    "KafkaOptions",
    "LifetimeNotAllowed",
    "Limits",
    "Message",
    "MessageState",
    "MessageTooLarge",
    "MissingPackage",
    "NoReply",
    "NotAccepted",
    "NotReachable",
    "NotSupported",
    "Presence",
    "PublishRefused",
    "QuicTls",
    "StoreDamaged",
    "StoreError",
    "StoreFailed",
    "StoreForeign",
    "StoreFull",
    "StoreInUse",
    "SubscribeRefused",
    "Subscription",
    "SyncClient",
    "SyncMessage",
    "TooManyRequests",
    "Unreachable",
    "WaystationError",
    "__version__",
]
