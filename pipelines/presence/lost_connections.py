"""The ends of connections that nobody reported, because their gateway was lost: events that the ledger adds (R12).

A connection whose gateway is lost ends with one event `lost`, reason `gateway_lost`, under its own epoch. It is added
when a newer boot of the gateway reports, or when the gateway is found gone. If that gateway comes back with its
connections, an event `connected`, reason `gateway_back`, takes the end back. All this follows from the state before a
batch, the batch's events and what is known of the gateways, so a repeated batch gives the same events with the same
numbers.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from pipelines.presence.attachments import GATEWAY_LOST, LIVE, Known, ReportedEvent, is_void
from schemas.events import PresenceEvent
from schemas.states import Attachment, GatewayState, PresenceState

GATEWAY_BACK = "gateway_back"
REASONS = (GATEWAY_LOST, GATEWAY_BACK)
"""Reasons of the added events. Gateways never use them."""


def superseded(old: Sequence[Known], events: Iterable[ReportedEvent]) -> list[tuple[ReportedEvent, int]]:
    """Connections that are over because `events` come from a newer boot of their gateway, and that no event ended: the
    last event of each, and the time of the first event of that boot. `old` are the attachments before; what was over by
    then was reported then. A boot itself reports the ends of all its connections except the last. Order of the events
    is irrelevant."""
    base = {one.key: (one.last.boot, one.last.epoch) for one in old}
    reported: dict[tuple[str, str], dict[tuple[int, int], list[ReportedEvent]]] = {}
    for event in (*(one.last for one in old), *events):
        key, life = (event.gateway, event.attachment), (event.boot, event.epoch)
        reported.setdefault(key, {}).setdefault(life, []).append(event)
    found = []
    for key, lives in reported.items():
        for life in {boot: (boot, epoch) for boot, epoch in sorted(lives)}.values():
            last, newer = max(lives[life]), [other for other in lives if other[0] > life[0]]
            if newer and last.event in LIVE and life >= base.get(key, life):
                found.append((last, min(event.at_us for event in lives[min(newer)])))
    return found


def of_gateways(
    client: str,
    old: Sequence[Known],
    new: Sequence[Known],
    before: Mapping[str, GatewayState],
    now: Mapping[str, GatewayState],
) -> Iterator[PresenceEvent]:
    """The events to add because gateways were lost or came back. `before` and `now` are what is known of the gateways,
    `old` and `new` the client's attachments at these times."""
    were_void = {
        (one.key, one.last.boot, one.last.epoch): is_void(one.last.gateway, one.last.boot, before)
        for one in old
        if one.live
    }
    for one in new:
        if one.live:
            was = were_void.get((one.key, one.last.boot, one.last.epoch), False)
            yield from _turned(client, one.last, was, is_void(one.last.gateway, one.last.boot, now), now)


def revised(published: PresenceState, state: PresenceState, now: Mapping[str, GatewayState]) -> Iterator[PresenceEvent]:
    """The same for a client without events: `published` is its published state, `state` the new one."""
    for was, one in zip(published.attachments, state.attachments, strict=True):
        if one.event in LIVE:
            yield from _turned(published.client, one, not was.live, not one.live, now)


def lost(client: str, last: ReportedEvent | Attachment, at_us: int) -> PresenceEvent:
    """The end, found at `at_us` (µs since the epoch), of the connection whose last event is `last`."""
    return _event(client, last, "lost", GATEWAY_LOST, at_us)


def _turned(
    client: str, last: ReportedEvent | Attachment, was_void: bool, is_void_now: bool, now: Mapping[str, GatewayState]
) -> Iterator[PresenceEvent]:
    if was_void != is_void_now:
        at_us = now[last.gateway].at_ms * 1000
        yield lost(client, last, at_us) if is_void_now else _event(client, last, "connected", GATEWAY_BACK, at_us)


def _event(client: str, last: ReportedEvent | Attachment, event: str, reason: str, at_us: int) -> PresenceEvent:
    """Numbered by its time, which is greater than the numbers of gateways: those count from 0."""
    return PresenceEvent(
        client=client,
        event=event,  # type: ignore[arg-type]
        gateway=last.gateway,
        epoch=last.epoch,
        seq=at_us,
        at_us=at_us,
        reason=reason,
        attachment=last.attachment,
        boot=last.boot,
    )
