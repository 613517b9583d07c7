"""Errors of redundant feeds. The text of each says what was wrong.

WaystationError
├── RecordError
│   └── FeedRecordError     a record is no feed message, or a stamp exceeds its limit
├── FeedError
│   └── FeedSettingsError   options of a source contradict each other, or a value does not fit
├── FeedStateError          a stored state of the merger does not fit
└── AnnouncementRefused     too many administrative messages are announced already
"""

from schemas.errors import RecordError, WaystationError


class FeedRecordError(RecordError):
    """A record does not follow the format of feed messages, or a field exceeds its limit."""


class FeedError(WaystationError):
    """Base of the errors of a source and its adapters."""


class FeedSettingsError(FeedError):
    """Options of a source, or a field of a packet to be built, are not allowed."""


class FeedStateError(WaystationError):
    """A stored state is contradictory, so nothing can be continued from it."""


class AnnouncementRefused(WaystationError):
    """An administrative message is not announced, because as many as allowed are open."""
