"""Errors of the subscriber of feeds. The text of each says what happened and what to do.

WaystationError
└── ClientError
    ├── FeedUnavailable   the feed cannot be read: no broker answers, there is no such topic, no right to read it
    └── FeedClosed        the subscriber is not open

Errors of the state's file are those of :mod:`edge.client.errors`: StoreInUse, StoreForeign, StoreDamaged, StoreFailed.
"""

from edge.client.errors import ClientError


class FeedUnavailable(ClientError):
    """The feed cannot be read."""


class FeedClosed(ClientError):
    """The subscriber is not open yet, or no longer."""
