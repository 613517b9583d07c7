"""What an access point answers: the operational gateways for a bearer, in order of preference (G1, G2, G12).

The home of the client's session is first; the others follow by load.
"""

from collections.abc import Callable
from random import Random

from gateway.members.ranking import ConnectPoint, connect_points, ranked
from gateway.members.table import MemberTable
from schemas.member_settings import AccessPointSettings


class AccessPoint:
    """`now` gives monotonic seconds, the same as those in `table`. `owner`: the gateway that has a client's session;
    None if that is not known. Without it, sessions are at one gateway only."""

    def __init__(
        self,
        table: MemberTable,
        settings: AccessPointSettings,
        random: Random,
        now: Callable[[], float],
        owner: Callable[[str], str | None] | None = None,
    ) -> None:
        self._table = table
        self._settings = settings
        self._random = random
        self._now = now
        self._owner = owner

    @property
    def is_enabled(self) -> bool:
        """Whether clients may ask here (G12)."""
        return self._settings.enabled

    @property
    def fresh_s(self) -> int:
        """For how many seconds an answer may be used."""
        return self._settings.fresh_s

    def connect_points(self, bearer: str, client: str | None = None) -> list[ConnectPoint]:
        """Where a client may connect, the best first; none if no operational gateway has the bearer."""
        members = self._table.operational(self._now())
        order = ranked(members, self._settings.strategy, self._settings.equal_within, self._random)
        if client is not None and self._owner is not None:
            home = self._owner(client)
            order.sort(key=lambda member: member.name != home)  # stable: the others keep their order
        return connect_points(order, bearer)
