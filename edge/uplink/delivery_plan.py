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

What is held is told by :meth:`DeliveryPlan.added`, `given` and `removed`; a turn costs what :mod:`.streams` says.

Which first: our own messages of which others have copies (M13: what became of them?), then urgent ones, then the stream
whose next message has waited longest.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from random import random
from typing import Final

from bundles.bundle import Header
from edge.mesh.held import Held
from edge.reconnect import FullJitter
from edge.uplink.bearers import BearerState
from edge.uplink.streams import BearerChoice, Entry, Lane, Stream

__all__ = ["DeliveryPlan", "Entry", "PlanLimits"]

_StreamKey = tuple[str, int, str]
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


class DeliveryPlan:
    """`needs_claim` and `is_urgent` answer for a bundle; what once needs a claim, always does. `name` is the agent's.
    Times are seconds of the clock of :attr:`edge.mesh.held.Held.since`."""

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
        self._entries: dict[str, Entry] = {}  # those that were tried
        self._streams: dict[_StreamKey, Stream] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def has(self, entry: Entry) -> bool:
        """Whether its bundle is still held."""
        return self._entries.get(entry.id) is entry

    @property
    def refused(self) -> dict[str, str]:
        """What is not tried here again, and why."""
        return {entry.id: entry.refusal for entry in self._entries.values() if entry.refusal}

    # -- what is held --------------------------------------------------------------------------------------------------

    def added(self, held: Held) -> None:
        """There is a bundle more."""
        header = held.header
        stream = self._streams.setdefault(_stream_of(header), Stream())
        stream.wait(held, needs_claim=self._needs_claim(held))
        stream.urgent += self._is_urgent(header)
        self._count += 1

    def given(self, held: Held) -> None:
        """A copy of it has left: perhaps a claim is needed now."""
        stream = self._streams.get(_stream_of(held.header))
        if stream is not None:
            stream.may_need_claims |= self._needs_claim(held)

    def removed(self, held: Held) -> None:
        """It is not held any more: delivered, or its lifetime is over."""
        header = held.header
        key = _stream_of(header)
        stream, entry = self._streams.get(key), self._entries.pop(held.message_id, None)
        if stream is None:
            return
        if entry is not None:
            stream.tried.remove(entry)
        else:
            try:
                stream.waiting.remove(held)
            except ValueError:
                return  # nobody has told of it
        self._count -= 1
        if entry is None or not entry.refusal:
            stream.urgent -= self._is_urgent(header)
        if not len(stream):
            del self._streams[key]

    # -- which next ----------------------------------------------------------------------------------------------------

    def to_ask(self, at: BearerState, bearers: Sequence[BearerState], now: float, most: int) -> list[Entry]:
        """The messages for which presence is to be asked now, over the bearer; they are in flight until
        :meth:`release`."""
        open_leases = sum(entry.lease_until > now for entry in self._entries.values())
        most = min(most, self.limits.leases - open_leases)
        choice = BearerChoice(at, bearers, now)
        found: list[Entry] = []
        for stream in self._by_urgency() if choice.takes_any and most > 0 else ():
            new: list[Entry] = []
            needs_any = False
            for one in stream.in_sequence(with_waiting=stream.may_need_claims):
                if isinstance(one, Entry):
                    if self._must_ask(one, now) and choice.takes(one.held, is_urgent=one.is_urgent):
                        found.append(one)
                elif self._needs_claim(one):
                    needs_any = True
                    self._choose(one, choice, found, new)
                if len(found) >= most:
                    break
            else:
                stream.may_need_claims = needs_any
            self._try(stream, new)
            if len(found) >= most:
                break
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
        choice = BearerChoice(at, bearers, now)
        found: list[Entry] = []
        left = size
        for stream in self._by_urgency() if choice.takes_any else ():
            new: list[Entry] = []
            for one in self._postable(stream, now, presence_out_since):
                if isinstance(one, Entry) and choice.takes(one.held, is_urgent=one.is_urgent):
                    found.append(one)
                elif isinstance(one, Entry) or not self._choose(one, choice, found, new):
                    continue
                left -= found[-1].held.size
                if len(found) > 1 and (left < 0 or len(found) > bundles):
                    excess = found.pop()
                    self._try(stream, [entry for entry in new if entry is not excess])
                    return _taken(found, "post")
            self._try(stream, new)
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
        stream = self._streams.get(_stream_of(entry.header))
        if stream is not None and self.has(entry) and not entry.refusal:
            stream.urgent -= entry.is_urgent
        entry.refusal, entry.lease_until = reason or "no reason was given", 0.0

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
        unjudged = entry.unjudged_since
        if self._waits_too_long(entry.held, now, out_since):
            return True
        return unjudged is not None and entry.is_confirmed and now - unjudged >= self.limits.patience_s

    def _waits_too_long(self, held: Held, now: float, out_since: float | None) -> bool:
        return out_since is not None and now - max(out_since, held.since) >= self.limits.patience_s

    def _postable(self, stream: Stream, now: float, out_since: float | None) -> Iterator[Entry | Held]:
        """Of a stream, in sequence, up to the first that holds the others back."""
        if any(entry.lane == "post" for entry in stream.tried):
            return
        is_patient = out_since is not None and now - out_since < self.limits.patience_s
        for one in stream.in_sequence(with_waiting=not (is_patient and stream.all_need_claims)):
            if not isinstance(one, Entry):
                if not self._needs_claim(one) or self._waits_too_long(one, now, out_since):
                    yield one
                elif out_since is None:
                    return  # it will be asked for at once
                continue
            if one.refusal:
                continue
            if one.post_at > now:
                if one.holds_back:
                    return
                continue
            is_free = one.lease_until > now or self._is_overdue(one, now) or not self._needs_claim(one.held)
            if not one.lane and (is_free or self._is_impatient(one, now, out_since)):
                yield one
            elif not one.is_confirmed and out_since is None:
                return  # it is being asked for, or will be at once

    def _choose(self, held: Held, choice: BearerChoice, found: list[Entry], new: list[Entry]) -> bool:
        """Makes an entry of one that waits, if the bearer takes it."""
        header = held.header
        is_urgent = self._is_urgent(header)
        if not choice.takes(held, is_urgent=is_urgent):
            return False
        entry = Entry(held, header, is_urgent)
        found.append(entry)
        new.append(entry)
        return True

    def _try(self, stream: Stream, new: Sequence[Entry]) -> None:
        if new:
            stream.try_them(new)
            self._entries.update((entry.id, entry) for entry in new)

    def _by_urgency(self) -> list[Stream]:
        """The streams in the order in which they are served."""
        return [stream for *_, stream in sorted(map(self._rank, self._streams.values()), key=itemgetter(0, 1, 2))]

    def _rank(self, stream: Stream) -> tuple[bool, bool, float, Stream]:
        first = stream.first()
        if first is None:
            return True, True, 0.0, stream
        is_own = first.header.originator == self._name
        asks_first = is_own and (
            stream.may_need_claims or any(not entry.refusal and self._needs_claim(entry.held) for entry in stream.tried)
        )
        return not asks_first, not stream.urgent, first.since, stream


def _stream_of(header: Header) -> _StreamKey:
    return header.originator, header.incarnation, header.destination


def _taken(entries: list[Entry], lane: Lane) -> list[Entry]:
    for entry in entries:
        entry.lane = lane
    return entries
