"""Client presence as a fold: what is known of a client's attachments, and how events change it (R12).

Of each attachment only the newest epoch of the newest boot of its gateway counts. (A gateway's boots grow, whatever its
clock does.) Within the epoch, the first event gives who, from where and since when, and the last event gives whether
the attachment is live, and if not, why. Both are extremes, so the result does not depend on order or copies, as long as
at most `most` attachments are known. Beyond that, attachments are forgotten: ended ones first, the oldest of them
first.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from schemas.states import Attachment, GatewayState, PresenceState

LIVE = ("connected", "heartbeat")
GATEWAY_LOST = "gateway_lost"
"""Why an attachment ended when its gateway was lost without reporting the end."""


class ReportedEvent(NamedTuple):
    """An event of a client, as in :class:`schemas.events.PresenceEvent`. The fields are ordered so that tuples sort as
    events."""

    epoch: int
    seq: int
    event: str
    gateway: str
    attachment: str
    boot: int
    at_us: int
    peer: str
    protocol: str
    reason: str
    user: str


class Known(NamedTuple):
    """An attachment: the `first` and the `last` event of its newest epoch."""

    first: ReportedEvent
    last: ReportedEvent

    @property
    def key(self) -> tuple[str, str]:
        return self.last.gateway, self.last.attachment

    @property
    def live(self) -> bool:
        return self.last.event in LIVE

    def reported(self) -> tuple[object, ...]:
        """What is reported when it changes. Another heartbeat is not a change."""
        number = None if self.live else self.last.seq
        return self.key, self.last.boot, self.last.epoch, self.live, self.first, number


def after(known: Iterable[Known], events: Iterable[ReportedEvent], most: int) -> list[Known]:
    """The attachments after `events`, in a fixed order. At most `most` are kept."""
    attachments = {one.key: one for one in known}
    for event in events:
        key = event.gateway, event.attachment
        old = attachments.get(key)
        attachments[key] = Known(event, event) if old is None else _newer(old, event)
    kept = sorted(attachments.values(), key=lambda one: (one.live, one.last))[-most:]
    return sorted(kept, key=lambda one: one.key)


def is_news(old: Sequence[Known], new: Sequence[Known]) -> bool:
    """Whether there is a change to report."""
    return [one.reported() for one in old] != [one.reported() for one in new]


def state_of(client: str, known: Sequence[Known], gateways: Mapping[str, GatewayState]) -> PresenceState:
    """The published state of a client. `gateways`, by name, say which attachments are void, and since when."""
    attachments = [
        Attachment(
            gateway=one.last.gateway,
            attachment=one.last.attachment,
            boot=one.last.boot,
            epoch=one.last.epoch,
            seq=one.last.seq,
            event=one.last.event,
            live=one.live,
            since_us=one.first.at_us,
            at_us=one.last.at_us,
            peer=one.first.peer,
            protocol=one.first.protocol,
            reason=one.last.reason,
            user=one.first.user,
        )
        for one in known
    ]
    return _published(client, attachments, gateways, None)


def last_used_ms(known: Sequence[Known], gateways: Mapping[str, GatewayState], now_ms: int) -> int:
    """When a client was last online according to others: now, if it still is; when its gateway was found gone; 0 if the
    client's own events say everything."""
    used = [0]
    for one in known:
        if one.live:
            is_over = is_void(one.last.gateway, one.last.boot, gateways)
            used.append(gateways[one.last.gateway].at_ms if is_over else now_ms)
    return max(used)


def known_from(published: PresenceState) -> list[Known]:
    """What is known of a client's attachments, as far as its published state says."""
    return [Known(_first_of(one), _last_of(one)) for one in published.attachments]


def revised(published: PresenceState, gateways: Mapping[str, GatewayState]) -> PresenceState:
    """The same state after gateways have gone or come back."""
    return _published(published.client, published.attachments, gateways, None if published.online else published)


def _published(
    client: str,
    attachments: Sequence[Attachment],
    gateways: Mapping[str, GatewayState],
    offline: PresenceState | None,
) -> PresenceState:
    """`offline` is the previously published state if the client was offline in it: nothing can end it again."""
    now = [msgspec.structs.replace(one, live=_lives(one, gateways)) for one in attachments]
    if offline is not None and not any(one.live for one in now):
        return msgspec.structs.replace(offline, attachments=now)
    since = {_key(one): _since_us(one, gateways) for one in now}
    newest = max(now, key=lambda one: (one.live, since[_key(one)], one.epoch, one.seq, _key(one)))
    ended = GATEWAY_LOST if newest.event in LIVE else newest.reason
    return PresenceState(
        client=client,
        online=newest.live,
        at_us=since[_key(newest)],
        reason="" if newest.live else ended,
        attachments=now,
    )


def _key(one: Attachment) -> tuple[str, str]:
    return one.gateway, one.attachment


def _lives(one: Attachment, gateways: Mapping[str, GatewayState]) -> bool:
    return one.event in LIVE and not is_void(one.gateway, one.boot, gateways)


def _since_us(one: Attachment, gateways: Mapping[str, GatewayState]) -> int:
    """Since when the attachment has been in its present state."""
    is_over = one.event in LIVE and not one.live
    return gateways[one.gateway].at_ms * 1000 if is_over else one.at_us


def is_void(name: str, boot: int, gateways: Mapping[str, GatewayState]) -> bool:
    """Whether the attachments of a gateway's `boot` are over, whatever their last event was."""
    gateway = gateways.get(name)
    return gateway is not None and boot < gateway.void_before


def _first_of(one: Attachment) -> ReportedEvent:
    """Sorts before all other events of its epoch: the published state does not have the number of the first event."""
    return _last_of(one)._replace(seq=-1, event="connected", at_us=one.since_us, reason="")


def _last_of(one: Attachment) -> ReportedEvent:
    return ReportedEvent(*(getattr(one, name) for name in ReportedEvent._fields))


def _newer(old: Known, event: ReportedEvent) -> Known:
    life, known = (event.boot, event.epoch), (old.last.boot, old.last.epoch)
    if life != known:
        return Known(event, event) if life > known else old
    return Known(min(old.first, event), max(old.last, event))
