"""Puts the messages of MoldUDP64 into order, and says which are to be requested again (S2). Pure.

Datagrams are lost, doubled and overtake each other. A message beyond the next one is held. A number that is missing for
`reorder_ms` is requested, if there is a request server: again every `request_ms`, and at once for the rest when a part
has come, at most `requests_per_s`. After `within_ms` it is given up, or after `reorder_ms` without a server, or when
more is held than allowed. A heartbeat says which numbers there are, so a missing last message is noticed, too.

Where a stream begins: behind what the own slot's log has of it; otherwise with the first message that comes.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from edge.feeds.formats.moldudp64 import Downstream, EndOfSession, Heartbeat, Request
from edge.feeds.source import Malformed, SourceMessage
from feeds.gaps import Gap, Gaps

SESSIONS_MAX: Final = 8
"""Sessions that are followed at once; the one that was first is forgotten."""
GAPS_ASKED_MAX: Final = 32
"""Gaps of a session that are asked for at once, the lowest first."""
GIVEN_UP_MAX: Final = 1_000
"""Ranges of a session that were given up, and are remembered so that what comes late is not taken for a copy."""


@dataclass(frozen=True, slots=True)
class MoldLimits:
    """Times in milliseconds. `has_server`: whether anything can be requested."""

    reorder_ms: float = 20.0
    reorder_messages: int = 10_000
    has_server: bool = False
    request_ms: float = 50.0
    within_ms: float = 500.0
    requests_per_s: float = 100.0
    request_messages: int = 1_000


@dataclass(slots=True)
class _Session:
    next: int
    top: int  # the highest number that is known to exist
    name: str = ""
    held: dict[int, SourceMessage] = field(default_factory=dict)
    missing: Gaps = field(default_factory=Gaps)
    given_up: Gaps = field(default_factory=Gaps)
    asked: dict[int, float] = field(default_factory=dict)  # when each gap was asked for, by its first number


class MoldOrder:
    """`last`: the highest number that the own slot's log has, by source stream. Times are the caller's."""

    def __init__(self, limits: MoldLimits, last: Mapping[str, int]) -> None:
        self._limits, self._last = limits, last
        self._sessions: dict[str, _Session] = {}
        self._tokens, self._tokens_at = 1.0, 0.0
        self.doubled = 0
        self.late = 0
        self.given_up = 0
        self.requested = 0

    def take(self, found: Iterable[Downstream], now_ms: float) -> list[Downstream]:
        """What is next, in order; reports of malformed datagrams at once."""
        out: list[Downstream] = []
        for one in found:
            if isinstance(one, Malformed):
                # Its messages can be requested, so its number is not used up.
                out.append(Malformed(one.position, one.reason))
            elif isinstance(one, SourceMessage):
                self._message(one, now_ms, out)
            else:
                self._announced(one, now_ms, out)
        return out

    def expire(self, now_ms: float) -> list[Downstream]:
        """What is next now that some numbers are given up."""
        out: list[Downstream] = []
        for stream, session in self._sessions.items():
            while len(session.missing) and now_ms - session.missing.front.since_ms >= self._wait_ms:
                self._give_up(stream, session, out)
        return out

    def requests(self, now_ms: float) -> list[Request]:
        """What to request now."""
        if not self._limits.has_server:
            return []
        found: list[Request] = []
        rate = self._limits.requests_per_s
        self._tokens = min(max(1.0, rate / 10), self._tokens + (now_ms - self._tokens_at) / 1000 * rate)
        self._tokens_at = now_ms
        for session in self._sessions.values():
            if session.name:
                found += self._requests_of(session, now_ms)
        self.requested += len(found)
        return found

    def _requests_of(self, session: _Session, now_ms: float) -> Iterator[Request]:
        limits = self._limits
        asked, session.asked = session.asked, {}
        for gap in islice(session.missing, GAPS_ASKED_MAX):
            at_ms = asked.get(gap.first)
            is_asked = at_ms is not None and now_ms - at_ms < limits.request_ms
            if is_asked or now_ms - gap.since_ms < limits.reorder_ms or self._tokens < 1:
                if at_ms is not None:
                    session.asked[gap.first] = at_ms
                continue
            self._tokens -= 1
            session.asked[gap.first] = now_ms
            yield Request(session.name, gap.first, min(gap.last - gap.first + 1, limits.request_messages))

    def due_ms(self, now_ms: float) -> float | None:
        """When to look again; None if nothing is missing."""
        fronts = [session.missing.front.since_ms for session in self._sessions.values() if len(session.missing)]
        if not fronts:
            return None
        if self._limits.has_server:
            return now_ms + min(self._limits.reorder_ms, self._limits.request_ms) / 2
        return min(fronts) + self._limits.reorder_ms

    @property
    def _wait_ms(self) -> float:
        limits = self._limits
        return max(limits.within_ms, limits.reorder_ms) if limits.has_server else limits.reorder_ms

    def _session(self, stream: str, first: int) -> _Session:
        found = self._sessions.get(stream)
        if found is None:
            known = self._last.get(stream)
            begin = first if known is None else known + 1
            found = self._sessions[stream] = _Session(begin, begin - 1)
            while len(self._sessions) > SESSIONS_MAX:
                del self._sessions[next(iter(self._sessions))]
        return found

    def _message(self, message: SourceMessage, now_ms: float, out: list[Downstream]) -> None:
        number = message.number
        assert number is not None
        session = self._session(message.stream, number)
        session.name = session.name or str(message.fields["session"])
        if number < session.next:
            if session.given_up.take_out(number) is None:
                self.doubled += 1
            else:
                self.late += 1
                out.append(message)
            return
        if number in session.held:
            self.doubled += 1
            return
        self._reach(session, number - 1, now_ms)
        if number > session.top:
            session.top = number
        else:
            session.missing.take_out(number)
        session.held[number] = message
        self._drain(session, out)
        while len(session.held) > self._limits.reorder_messages:
            self._give_up(message.stream, session, out)

    def _announced(self, one: Heartbeat | EndOfSession, now_ms: float, out: list[Downstream]) -> None:
        session = self._session(one.stream, one.next_number)
        self._reach(session, one.next_number - 1, now_ms)
        if session.next >= one.next_number:
            out.append(one)

    def _reach(self, session: _Session, top: int, now_ms: float) -> None:
        """Numbers up to `top` exist, so those that have not come are missing."""
        if top > session.top:
            session.missing.append(Gap(session.top + 1, top, since_ms=now_ms))
            session.top = top

    def _drain(self, session: _Session, out: list[Downstream]) -> None:
        held = session.held
        while (message := held.pop(session.next, None)) is not None:
            out.append(message)
            session.next += 1

    def _give_up(self, stream: str, session: _Session, out: list[Downstream]) -> None:
        gap = session.missing.take_through(session.missing.front.last)
        assert gap is not None
        self.given_up += gap.last - gap.first + 1
        session.given_up.append(gap)
        while len(session.given_up) > GIVEN_UP_MAX:
            session.given_up.take_through(session.given_up.front.last)
        session.next = gap.last + 1
        out.append(Heartbeat(stream, session.next))
        self._drain(session, out)
