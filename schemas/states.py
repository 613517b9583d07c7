"""What Spark merges from events: the JSON records on the compacted topics `presence-state` and
`message-presence-state`, one per key. A record without a value ends its key.

Times are integers since the epoch, named by unit.
"""

from typing import Literal

import msgspec

from schemas.events import Event

GATEWAY_MARK = "\0gateway/"
"""Prefix of the key of a gateway's own record on `presence-state`. No client id contains U+0000 (MQTT 5.0, 1.5.4)."""


class Attachment(msgspec.Struct, frozen=True, kw_only=True):
    """One way a client was connected, by the newest known epoch: see :class:`schemas.events.PresenceEvent`.

    `event` is the last one, and `live` follows from it: connected, and its gateway not known to be gone. `since_us` is
    when the epoch began, as far as known; `at_us` the time of the last event.
    """

    gateway: str
    attachment: str
    boot: int
    epoch: int
    seq: int
    event: str
    live: bool
    since_us: int
    at_us: int
    peer: str
    protocol: str
    reason: str
    user: str


class PresenceState(Event, frozen=True, kw_only=True):
    """On `presence-state`, key client id: whether a client is online, over all its attachments (R12).

    It is online while any attachment is live. `at_us` is the time of the event that led to this, by its gateway's
    clock; if its gateway is gone, the time when that was found, by the broker's clock. `reason` is why the last
    attachment ended, "" while online.
    """

    client: str
    online: bool
    at_us: int
    reason: str
    attachments: list[Attachment]


class GatewayState(Event, frozen=True, kw_only=True):
    """On `presence-state`, key `GATEWAY_MARK` and name: whether a gateway is alive. One record voids or revives all its
    attachments: those of an earlier `boot` are void, and those of this `boot` while it is not `alive`. `at_ms` is when
    that was found, broker's clock."""

    gateway: str
    alive: bool
    boot: int
    at_ms: int

    @property
    def void_before(self) -> int:
        """Attachments of an earlier boot are void."""
        return self.boot + (not self.alive)


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """Who alone may deliver a message, and until when, by the broker's clock; `at_us` is when it was requested
    (M11)."""

    agent: str
    at_us: int
    until_ms: int


class LastReport(msgspec.Struct, frozen=True, kw_only=True):
    """The last report on whether `agent` holds a message: by the agent itself or, if `propagated`, by the agent that
    gave it the copy; `at_us` is when, by the reporting agent's clock; `reason` why it refused, "" if it did not
    (M6)."""

    agent: str
    event: Literal["attempting", "propagated", "refused"]
    at_us: int
    reason: str


class MessagePresenceState(Event, frozen=True, kw_only=True):
    """On `message-presence-state`, key message id: what all agents together know of a message (M9).

    `state`: `delivered` wins over `expired`, and `expired` over `pending`. `delivered_us` is the earliest delivery, by
    `delivered_by` to `delivered_to`. `holders` are the agents reported to hold a copy that have not refused it;
    `attempting` are those among them that try to deliver it; `reports` are what agents reported, from which these
    lists follow. `claim` is the last one granted, which may be over. `retired`: the originator no longer needs the
    record. It is kept until `kept_until_ms`. `judged` is the offset, on the message's partition of `message-presence`,
    of the last claim that was granted or not, -1 for none; `judged_ms` is its append time there, because offsets start
    again on a recreated topic.
    """

    id: str
    state: Literal["pending", "expired", "delivered"]
    origin: str
    delivered_by: str
    delivered_to: str
    delivered_us: int
    holders: list[str]
    attempting: list[str]
    refused: list[str]
    claim: Claim | None
    retired: bool
    kept_until_ms: int
    judged: int
    judged_ms: int = 0
    reports: list[LastReport] = msgspec.field(default_factory=list)

    def has_judged(self, offset: int, appended_ms: int) -> bool:
        """Whether the claim at `offset`, appended at `appended_ms`, has been judged: granted or not."""
        return self.judged >= offset and self.judged_ms >= appended_ms

    def is_claimed_by(self, agent: str, at_us: int, now_ms: int) -> bool:
        """Whether `agent` alone may deliver the message, by the claim it made at `at_us` (M11): the claim was granted
        and is not over, and there is still something to deliver."""
        claim = self.claim
        if claim is None or self.state != "pending" or self.retired:
            return False
        return (claim.agent, claim.at_us) == (agent, at_us) and claim.until_ms > now_ms
