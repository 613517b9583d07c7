"""What an adapter reads, as beats say it, so that others decide whether it can be their pair (S2). Pure."""

from typing import TYPE_CHECKING, Final

from feeds.counter import Counter
from feeds.line_mapping import LineMapping
from feeds.pairing import FeedSource, SourceFormat

if TYPE_CHECKING:
    from edge.feeds.adapter.settings import SourceSection

MAPPED: Final = ("csv", "json")
"""The formats of which a mapping says what is what."""


def feed_source(source: "SourceSection", streams: int) -> FeedSource:
    """What decides on pairs. Raises FeedSettingsError if the section contradicts itself."""
    mapping, is_numbered = source.mapping, bool(source.sequencer)
    counter = Counter(mapping.counter_first, mapping.counter_last) if mapping.counter_last else None
    found = FeedSource(
        format=SourceFormat(source.format),
        name=source.name,
        sequencer=source.sequencer or None,
        mapping=LineMapping(
            stream=mapping.stream or None,
            number=mapping.number or None,
            time=mapping.time or None,
            time_unit=mapping.time_unit,
            counter=None if counter is None else counter.checked(),
            streams_max=streams,
            is_numbered=is_numbered,
        )
        if source.format in MAPPED
        else None,
        counter=Counter(source.miniseed.counter_first, source.miniseed.counter_last).checked(),
        epoch=source.epoch,
    )
    found.check()
    return found
