"""Errors of the subscriber of feeds. The text of each says what happened and what to do.

WaystationError
└── ClientError
    ├── FeedUnavailable   the feed cannot be read: no broker answers, there is no such topic, no right to read it
    ├── NotCommitted      too many items were given that the application has not committed
    └── FeedClosed        the subscriber is not open

Errors of the state's file are those of :mod:`edge.client.errors`: StoreInUse, StoreForeign, StoreDamaged, StoreFailed.
"""

from edge.client.errors import ClientError


class FeedUnavailable(ClientError):
    """The feed cannot be read."""


class NotCommitted(ClientError):
    """The application has taken as many items as allowed, and committed none of them."""


class FeedClosed(ClientError):
    """The subscriber is not open yet, or no longer."""
