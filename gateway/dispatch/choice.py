"""Which gateway a client is given to: the one that has its session, or else the least loaded one (R1, G14). Pure."""

from collections.abc import Callable, Iterator, Sequence
from random import Random

from gateway.members.ranking import ranked
from gateway.members.table import MemberTable
from schemas.member_settings import AccessPointSettings


class Choice:
    """`owner`: the gateway that owns a client's shard, if it is known; `next_owners`: those that would take the shard
    over, the first one first. `settings` says what load is; `now` gives monotonic seconds, as in `members`."""

    def __init__(
        self,
        owner: Callable[[str], str | None],
        next_owners: Callable[[str], Sequence[str]],
        members: MemberTable,
        settings: AccessPointSettings,
        random: Random,
        now: Callable[[], float],
    ) -> None:
        self._owner, self._next_owners = owner, next_owners
        self._members, self._settings, self._random, self._now = members, settings, random, now

    def order(self, client: str | None, is_lost: Callable[[str], bool]) -> Iterator[str]:
        """Names of gateways, of this machine and others, the best first; one may come twice. `client`: None if it is
        not known, and empty if it has no identifier.

        `is_lost`: whether a gateway was on this machine and cannot be reached. Its shards are about to move to their
        standbys, so these come next. The shards of a gateway on another machine stay there, and whoever is given the
        client relays it: that is for the least loaded one.
        """
        if client:
            owner = self._owner(client)
            if owner is not None:
                yield owner
            if owner is None or is_lost(owner):
                yield from self._next_owners(client)
        now = self._now()
        operational = self._members.operational(now)
        for member in ranked(operational, self._settings.strategy, self._settings.equal_within, self._random):
            yield member.name
        # While Kafka is away there are no heartbeats; those that were there may still serve.
        silent = [member.name for member in self._members if self._members.status(member, now) == "silent"]
        self._random.shuffle(silent)
        yield from silent
