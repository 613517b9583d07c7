"""What happens to each bundle next: ask message presence, deliver, wait, or leave it (M10, M11, M13). Pure: no I/O.

A message of which nobody else has a copy is delivered at once. For any other one there are two steps, by two lanes that
work side by side: *ask* (query, then claim) and *post*, which takes what needs no claim or has one:

    ASK --granted--> POST (until the lease ends) --taken--> settled      ASK --receipt--> settled
    ASK --claimed by another, or done but no receipt--> ASK again later  POST --later--> POST again later
    ASK, presence out of reach for patience_s --> POST without a claim   POST --refused--> left

A message that presence holds back is posted without a claim after `withheld_s`: an agent that claims for ever, or
reports a delivery that nobody has signed, may cost a duplicate, which recipients remove, but never the message.

Order: what one originator sends to one destination is a *stream*. Its messages are posted in their sequence, one
request at a time; one to which the gateway says `later`, or whose claim is being asked for, holds back those after it.
One that is left to others, refused, or waits for presence to come back, does not.

Which first: our own messages of which others have copies (M13: what became of them?), then urgent ones, then the stream
whose next message has waited longest.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from random import random
from typing import Final, Literal

from bundles.bundle import Header
from edge.mesh.carrier import Held
from edge.reconnect import FullJitter
from edge.uplink.bearers import BearerState, may_take

Stream = tuple[str, int, str]
Lane = Literal["", "ask", "post"]
_HOLDS_BACK: Final = 5  # attempts for which those after it in its stream wait


@dataclass(frozen=True, slots=True)
class PlanLimits:
    """Seconds, except `leases`: claims that are open at once. `lease_s` is the platform's `claim_s` at most."""

    patience_s: float = 300.0
    lease_s: float = 60.0
    recheck_s: float = 20.0
    withheld_s: float = 900.0
    retry_first_s: float = 2.0
    retry_most_s: float = 300.0
    leases: int = 1_000


@dataclass(slots=True)
class Entry:
    """A bundle and how far it is. `ask_at`, `post_at`: not before; `holds_back`: neither is what comes after it.
    `withheld_since`: since when presence holds it back; `unjudged_since`: since when it does not say whether the claim
    is granted; `is_confirmed`: one of both has been so since the uplink is up. `lane`: in which it is in flight."""

    held: Held
    is_urgent: bool
    lease_until: float = 0.0
    ask_at: float = 0.0
    post_at: float = 0.0
    withheld_since: float | None = None
    unjudged_since: float | None = None
    attempts: int = 0
    refusal: str = ""
    lane: Lane = ""
    is_confirmed: bool = False
    holds_back: bool = False
    is_reported: bool = False  # that we attempt to deliver it

    @property
    def header(self) -> Header:
        """The bundle's."""
        return self.held.bundle.header

    @property
    def id(self) -> str:
        """The message's."""
        return self.held.bundle.message_id


@dataclass(slots=True)
class _Stream:
    """In sequence. `is_sorted`: whether that is so now."""

    entries: list[Entry] = field(default_factory=list)
    is_sorted: bool = True


class DeliveryPlan:
    """`needs_claim` and `is_urgent` answer for a bundle; `name` is the agent's. Times are seconds of the clock of
    :attr:`edge.mesh.carrier.Held.since`."""

    def __init__(
        self,
        name: str,
        needs_claim: Callable[[Held], bool],
        is_urgent: Callable[[Header], bool],
        limits: PlanLimits | None = None,
        draw: Callable[[], float] = random,
    ) -> None:
        self._name, self._needs_claim, self._is_urgent = name, needs_claim, is_urgent
        self.limits = limits or PlanLimits()
        self._backoff = FullJitter(self.limits.retry_first_s, self.limits.retry_most_s, draw)
        self._entries: dict[str, Entry] = {}
        self._streams: dict[Stream, _Stream] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, message_id: str) -> bool:
        return message_id in self._entries

    @property
    def refused(self) -> dict[str, str]:
        """What is not tried here again, and why."""
        return {entry.id: entry.refusal for entry in self._entries.values() if entry.refusal}

    def sync(self, held: Iterable[Held]) -> None:
        """Takes what is new, and forgets what is not held any more."""
        present = set()
        for one in held:
            message_id = one.bundle.message_id
            present.add(message_id)
            if message_id not in self._entries:
                entry = self._entries[message_id] = Entry(one, self._is_urgent(one.bundle.header))
                stream = self._streams.setdefault(_stream_of(entry), _Stream())
                last = stream.entries[-1].header.sequence if stream.entries else 0
                stream.is_sorted &= last < entry.header.sequence
                stream.entries.append(entry)
        self.settled([message_id for message_id in self._entries if message_id not in present])

    # -- which next ----------------------------------------------------------------------------------------------------

    def to_ask(self, at: BearerState, bearers: Sequence[BearerState], now: float, most: int) -> list[Entry]:
        """The messages for which presence is to be asked now, over the bearer; they are in flight until
        :meth:`release`."""
        open_leases = sum(entry.lease_until > now for entry in self._entries.values())
        most = min(most, self.limits.leases - open_leases)
        found: list[Entry] = []
        for entries in self._by_urgency():
            for entry in entries:
                if len(found) >= most:
                    break
                if self._must_ask(entry, now) and self._may_take(entry, at, bearers, now):
                    found.append(entry)
        return _taken(found, "ask")

    def to_post(
        self,
        at: BearerState,
        bearers: Sequence[BearerState],
        now: float,
        presence_out_since: float | None,
        bundles: int,
        size: int,
    ) -> list[Entry]:
        """The messages to deliver now, over the bearer: so many, of so many bytes together, but one at least. They are
        in flight until :meth:`release`."""
        found: list[Entry] = []
        left = size
        for entries in self._by_urgency():
            for entry in self._postable(entries, now, presence_out_since):
                if not self._may_take(entry, at, bearers, now):
                    continue
                left -= entry.held.bundle.size
                if found and (left < 0 or len(found) >= bundles):
                    return _taken(found, "post")
                found.append(entry)
        return _taken(found, "post")

    def release(self, entries: Iterable[Entry]) -> None:
        """They are no longer in flight."""
        for entry in entries:
            entry.lane = ""

    # -- what became of it ---------------------------------------------------------------------------------------------

    def granted(self, entry: Entry, asked_at: float) -> None:
        """The claim asked for at `asked_at` is ours. Its last tenth is left for the way of a request to the gateway."""
        entry.lease_until = asked_at + 0.9 * self.limits.lease_s
        entry.withheld_since, entry.unjudged_since, entry.is_confirmed = None, None, False

    def withheld(self, entry: Entry, now: float, until: float = 0.0) -> None:
        """Another agent has the claim until then, or presence says that there is nothing to deliver any more."""
        entry.withheld_since = now if entry.withheld_since is None else entry.withheld_since
        entry.lease_until, entry.unjudged_since, entry.is_confirmed = 0.0, None, True
        entry.ask_at = now + min(self.limits.recheck_s, max(1.0, until - now) if until else self.limits.recheck_s)

    def unjudged(self, entry: Entry, now: float) -> None:
        """Presence has not said in time whether the claim is granted."""
        entry.unjudged_since = now if entry.unjudged_since is None else entry.unjudged_since
        entry.is_confirmed = True
        entry.ask_at = now + self._delay_s(entry)

    def later(self, entry: Entry, now: float, *, holds_back: bool = True) -> None:
        """It is not taken now. After some attempts it no longer holds back those after it."""
        entry.post_at = now + self._delay_s(entry)
        entry.holds_back = holds_back and entry.attempts <= _HOLDS_BACK

    def refuse(self, entry: Entry, reason: str) -> None:
        """The platform will never take it: it is not tried here again."""
        entry.refusal, entry.lease_until = reason or "no reason was given", 0.0

    def settled(self, message_ids: Iterable[str]) -> None:
        """These are gone: delivered, or their lifetime is over."""
        touched = set()
        for message_id in message_ids:
            entry = self._entries.pop(message_id, None)
            if entry is not None:
                touched.add(_stream_of(entry))
        for key in touched:
            stream = self._streams[key]
            stream.entries = [entry for entry in stream.entries if entry.id in self._entries]
            if not stream.entries:
                del self._streams[key]

    def uplink_lost(self) -> None:
        """No gateway is reachable: presence is asked first when one is again; only then does the time between count."""
        for entry in self._entries.values():
            entry.is_confirmed, entry.ask_at = False, 0.0

    # -- inside --------------------------------------------------------------------------------------------------------

    def needs_claim(self, entry: Entry) -> bool:
        """Whether others may have a copy."""
        return self._needs_claim(entry.held)

    def _delay_s(self, entry: Entry) -> float:
        entry.attempts += 1
        first_s = self.limits.retry_first_s
        return max(first_s / 2, self._backoff.delay_s(entry.attempts - 1))

    def _must_ask(self, entry: Entry, now: float) -> bool:
        if entry.lane or entry.refusal or entry.lease_until > now or now < max(entry.ask_at, entry.post_at):
            return False
        return not self._is_overdue(entry, now) and self._needs_claim(entry.held)

    def _is_overdue(self, entry: Entry, now: float) -> bool:
        """Whether presence has held it back for too long."""
        since = entry.withheld_since
        return since is not None and entry.is_confirmed and now - since >= self.limits.withheld_s

    def _is_impatient(self, entry: Entry, now: float, out_since: float | None) -> bool:
        """Whether it has waited for long enough for presence to come back (M10)."""
        unjudged, patience_s = entry.unjudged_since, self.limits.patience_s
        if out_since is not None and now - max(out_since, entry.held.since) >= patience_s:
            return True
        return unjudged is not None and entry.is_confirmed and now - unjudged >= patience_s

    def _postable(self, entries: Sequence[Entry], now: float, out_since: float | None) -> Iterator[Entry]:
        """Of a stream, in sequence, up to the first that holds the others back."""
        if any(entry.lane == "post" for entry in entries):
            return
        for entry in entries:
            if entry.refusal:
                continue
            if entry.post_at > now:
                if entry.holds_back:
                    return
                continue
            is_free = entry.lease_until > now or self._is_overdue(entry, now) or not self._needs_claim(entry.held)
            if not entry.lane and (is_free or self._is_impatient(entry, now, out_since)):
                yield entry
            elif not entry.is_confirmed and out_since is None:
                return  # it is being asked for, or will be at once

    def _may_take(self, entry: Entry, at: BearerState, bearers: Sequence[BearerState], now: float) -> bool:
        return may_take(at, bearers, now - entry.held.since, is_urgent=entry.is_urgent)

    def _by_urgency(self) -> list[list[Entry]]:
        """The entries of each stream, in sequence; the streams in the order in which they are served."""
        for stream in self._streams.values():
            if not stream.is_sorted:
                stream.entries.sort(key=lambda entry: entry.header.sequence)
                stream.is_sorted = True
        return sorted((stream.entries for stream in self._streams.values()), key=self._rank)

    def _rank(self, entries: Sequence[Entry]) -> tuple[bool, bool, float]:
        is_own = entries[0].header.originator == self._name
        asks_first = is_own and any(not entry.refusal and self._needs_claim(entry.held) for entry in entries)
        is_urgent = any(entry.is_urgent and not entry.refusal for entry in entries)
        since = min((entry.held.since for entry in entries if not entry.refusal), default=0.0)
        return not asks_first, not is_urgent, since


def _stream_of(entry: Entry) -> Stream:
    header = entry.header
    return header.originator, header.incarnation, header.destination


def _taken(entries: list[Entry], lane: Lane) -> list[Entry]:
    for entry in entries:
        entry.lane = lane
    return entries
