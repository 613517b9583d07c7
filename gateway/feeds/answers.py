"""What is known of a feed, as the API says it (S1). Pure."""

from collections.abc import Iterator

from feeds.brokering import FeedStatus, advice, status_of
from feeds.pairing import TITLES, FeedSource
from feeds.registry import KnownAdapter
from feeds.registry_records import AdministrativeRequest, AdministrativeResult, Assignment
from gateway.feeds.table import FeedTable
from schemas.feed_api import (
    AdministrativeState,
    FeedAdapter,
    FeedAdapterDetail,
    FeedAssignment,
    FeedDetail,
    FeedLag,
    FeedPair,
    FeedPlace,
    FeedPosition,
    FeedState,
)


def place(adapter: KnownAdapter | None) -> FeedPlace | None:
    if adapter is None:
        return None
    beat = adapter.beat
    return FeedPlace(slot=beat.slot, adapter=adapter.name, machine=beat.machine, zone=beat.zone)


def feed_state(table: FeedTable, feed: str, status: FeedStatus, subscribers: int, now: float) -> FeedState:
    registry = table.registry
    return FeedState(
        name=feed,
        state=status.state,
        active=place(status.active),
        backup=place(status.backup),
        reason=status.reason,
        revision=status.revision,
        adapters=[
            FeedAdapter(name=one.name, slot=one.beat.slot, state=one.beat.state, alive=registry.is_alive(one, now))
            for one in registry.adapters(feed)
        ],
        subscribers=subscribers,
    )


def feed_detail(table: FeedTable, feed: str, now: float) -> FeedDetail:
    registry, status = table.registry, status_of(table.registry, feed, now)
    pair = None
    if status.state == "redundant":
        pair = FeedPair(numbers_from=status.numbers_from)
    elif status.state == "refused":
        pair = FeedPair(refused=status.reason)
    return FeedDetail(
        name=feed,
        state=status.state,
        active=place(status.active),
        backup=place(status.backup),
        reason=status.reason,
        revision=status.revision,
        adapters=[_adapter(one, is_alive=registry.is_alive(one, now)) for one in registry.adapters(feed)],
        subscribers=table.subscribers(now)[feed],
        assignment=feed_assignment(status, registry.assignment(feed)),
        pair=pair,
        lag=list(lag_of(status)),
        advice=advice(registry, feed, now),
    )


def feed_assignment(status: FeedStatus, record: Assignment | None) -> FeedAssignment:
    """Without a record the first slot is the active one, by revision 0."""
    if record is None:
        return FeedAssignment(active=status.assigned, revision=0)
    return FeedAssignment(
        active=record.active,
        revision=record.revision,
        reason=record.reason,
        by=record.by,
        at_us=record.at_us,
        automatic=record.automatic,
    )


def lag_of(status: FeedStatus) -> Iterator[FeedLag]:
    """Of the source streams of which both adapters of a pair have said a position."""
    if status.active is None or status.backup is None:
        return
    behind = status.backup.beat.streams
    for stream, position in status.active.beat.streams.items():
        if stream in behind:
            yield FeedLag(stream=stream, lag=position.sequence - behind[stream].sequence)


def administrative_state(
    name: str, request: AdministrativeRequest | None, result: AdministrativeResult | None
) -> AdministrativeState | None:
    """None if nobody has asked for such a message."""
    if result is not None:
        return AdministrativeState(
            id=name, outcome=result.outcome, reason=result.reason, after=result.after, part=result.part
        )
    return None if request is None else AdministrativeState(id=name, outcome="pending")


def _adapter(adapter: KnownAdapter, *, is_alive: bool) -> FeedAdapterDetail:
    beat = adapter.beat
    return FeedAdapterDetail(
        name=adapter.name,
        slot=beat.slot,
        state=beat.state,
        alive=is_alive,
        reason=beat.reason,
        machine=beat.machine,
        zone=beat.zone,
        source=_described(beat.source),
        messages=beat.messages,
        malformed=beat.malformed,
        streams={
            stream: FeedPosition(sequence=position.sequence, read_us=position.read_us)
            for stream, position in beat.streams.items()
        },
    )


def _described(source: FeedSource) -> str:
    numbered = f", numbered by the sequencer {source.sequencer}" if source.sequencer else ""
    return f"{TITLES[source.format]} from {source.name}{numbered}"
