"""The gateways of a site, as a fold over the topic `members` (G2, G14). Pure: the reader's time comes in.

Of a name only the newest record counts, by (boot, sequence): so the order of records, copies of them, and compaction
change nothing. A record without a value forgets the name.

A gateway that was killed says nothing more, and its last record stays. So *life is progress in the log*: a member is
operational only while newer records of it arrive. Their age is taken by the reader's own monotonic time, never from the
clock of another machine. What was on the topic before the reader started proves nothing, however recent it is: such
records come without a time, and their members count once the next heartbeat is here.
"""

from collections.abc import Iterator
from typing import Literal, NamedTuple

from schemas.members import Heartbeat

Status = Literal["joining", "up", "draining", "gone", "silent"]
"""The state of a member's last record; `silent` if it is too old and the gateway has not said that it ends."""

STATUSES: tuple[Status, ...] = ("joining", "up", "draining", "gone", "silent")


class GatewayMember(NamedTuple):
    """A gateway by its newest record; `heard_at`: when that arrived, seconds on the reader's monotonic clock, None if
    it was there before the reader."""

    name: str
    record: Heartbeat
    heard_at: float | None


class MemberTable:
    """All members known, at most `limit`; beyond that the one not heard of for longest is forgotten. A member without a
    new record for `timeout_s` is not operational."""

    def __init__(self, limit: int, timeout_s: float) -> None:
        self._limit = limit
        self._timeout_s = timeout_s
        self._members: dict[str, GatewayMember] = {}  # the one not heard of for longest is first

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[GatewayMember]:
        return iter(list(self._members.values()))

    def get(self, name: str) -> GatewayMember | None:
        return self._members.get(name)

    def apply(self, name: str, record: Heartbeat | None, now: float | None) -> int:
        """Takes one record; None as record forgets the name. `now`: monotonic seconds, None for what was on the topic
        before. Returns how many other members it displaced, 0 or 1."""
        known = self._members.get(name)
        if record is None:
            self._members.pop(name, None)
            return 0
        if known is not None and (record.boot, record.seq) <= (known.record.boot, known.record.seq):
            return 0
        self._members.pop(name, None)
        self._members[name] = GatewayMember(name, record, now)
        if len(self._members) <= self._limit:
            return 0
        del self._members[next(iter(self._members))]
        return 1

    def status(self, member: GatewayMember, now: float) -> Status:
        """What a member counts as at `now`, monotonic seconds."""
        if member.record.state == "gone":
            return "gone"
        is_silent = member.heard_at is None or now - member.heard_at > self._timeout_s
        return "silent" if is_silent else member.record.state

    def operational(self, now: float) -> list[GatewayMember]:
        """The members that serve clients and take new ones, ordered by name."""
        serving = (member for member in self._members.values() if self.status(member, now) == "up")
        return sorted(serving, key=lambda member: member.name)
