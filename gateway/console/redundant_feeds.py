"""Redundant feeds: their state, the streams that are read, adapters, and what would make a feed safer (S1)."""

from collections.abc import Sequence

from gateway.console.parts import ROWS, TITLE_LENGTH, UNKNOWN, Cell, Kind, Page, Section, Table, name
from gateway.console.text import number, plain_number
from schemas.feed_api import FeedAdapterDetail, FeedDetail, FeedPlace
from schemas.visible import visible

PATH = "/console/feeds"
MOST = 20
"""Feeds on the page, by name."""

_STATES: dict[str, Kind] = {"redundant": "good", "single": "text", "down": "bad", "refused": "bad"}
_HEADINGS = ("feed", "state", "active", "backup", "reason", "largest lag of the backup", "subscribers", "revision")
_OF_ADAPTER = ("adapter", "slot", "state", "alive", "machine", "zone", "source", "messages", "malformed", "reason")


def page(feeds: Sequence[FeedDetail], total: int) -> Page:
    """`feeds` are the first ones of `total`."""
    table = Table(f"{len(feeds)} of {total} feeds", _HEADINGS, [_feed(one) for one in feeds], "no feed is known")
    lead = "All gateways know the same of feeds, from the topic feeds. Lag: how many numbers the backup is behind."
    sections = [Section("", lead, tables=[table]), *(_detail(one) for one in feeds)]
    return Page(PATH, "Feeds", sections)


def _feed(feed: FeedDetail) -> tuple[Cell, ...]:
    lag = max((one.lag for one in feed.lag), default=None)
    return (
        name(feed.name),
        Cell(feed.state, _STATES[feed.state]),
        _place(feed.active),
        _place(feed.backup),
        name(feed.reason),
        Cell(plain_number(lag), "number"),
        number(feed.subscribers),
        number(feed.revision),
    )


def _place(place: FeedPlace | None) -> Cell:
    if place is None:
        return Cell(UNKNOWN)
    return name(f"{place.adapter} on {place.machine}" + (f" in {place.zone}" if place.zone else ""))


def _detail(feed: FeedDetail) -> Section:
    rows = [_adapter(one) for one in feed.adapters[:ROWS]]
    table = Table("Adapters", _OF_ADAPTER, rows, "none has said anything")
    return Section(
        name(feed.name).text, tables=[table], notes=[visible(one[:TITLE_LENGTH]) for one in feed.advice[:MOST]]
    )


def _adapter(one: FeedAdapterDetail) -> tuple[Cell, ...]:
    return (
        name(one.name),
        Cell(one.slot),
        Cell(one.state, "good" if one.state == "up" and one.alive else "text"),
        Cell("yes") if one.alive else Cell("no", "bad"),
        name(one.machine),
        name(one.zone),
        name(one.source),
        number(one.messages),
        number(one.malformed),
        name(one.reason),
    )
