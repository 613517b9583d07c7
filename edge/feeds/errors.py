"""Errors of the adapters of feeds. The text of each says what was wrong, and what to do.

FeedError (:mod:`feeds.errors`)
├── FrameError            one frame or line of a source is malformed; the parser goes on with the next
├── SequenceStateError    the state file of `waystation feed sequence` cannot be used
├── OutputClosed          nobody reads the output of `waystation feed sequence` any more
└── AdapterError          an adapter cannot go on
    ├── TopicUnusable     the topic of the feed is none of a feed
    ├── SourceUnusable    its source cannot be read, and trying again would not help
    ├── NameTaken         another adapter was started with the same name
    └── CheckpointError   the state directory cannot be used

A parser never raises FrameError: it returns :class:`edge.feeds.source.Malformed` with its text.
"""

from feeds.errors import FeedError


class FrameError(FeedError):
    """A frame does not follow its format; the text is the reason. `part` of the source and `number` are set if they
    could be read all the same."""

    def __init__(self, reason: str, part: str | None = None, number: int | None = None) -> None:
        super().__init__(reason)
        self.part = part
        self.number = number


class SequenceStateError(FeedError):
    """The state file is locked, damaged, or cannot be read or written. No line was numbered."""


class OutputClosed(FeedError):
    """The reader of the numbered lines has ended. Numbers that it has not read are not used again."""


class AdapterError(FeedError):
    """An adapter cannot go on."""


class TopicUnusable(AdapterError):
    """The topic that is to have the messages is not one that the platform has made for a feed."""


class SourceUnusable(AdapterError):
    """The source cannot be read, and trying again would not help."""


class NameTaken(AdapterError):
    """Another adapter was started with the same name. Two with one name would take each other's beats for their own."""


class CheckpointError(AdapterError):
    """The state directory is in use, or cannot be read or written."""
