"""Heartbeats of adapters for tests."""

from typing import Any

from feeds.pairing import FeedSource, SourceFormat
from feeds.registry_records import AdapterBeat
from schemas.feed_words import Slot

SEQUENCED = FeedSource(format=SourceFormat.MODE_S, name="radar", sequencer="tower")
UNNUMBERED = FeedSource(format=SourceFormat.MODE_S, name="radar")


def beat(slot: Slot, boot: int, seq: int = 0, source: FeedSource = SEQUENCED, **other: Any) -> AdapterBeat:
    """Of an adapter that is up, on machine m."""
    fields: dict[str, Any] = {"state": "up", "at_us": 0, "machine": "m", **other}
    return AdapterBeat(slot=slot, boot=boot, seq=seq, source=source, **fields)
