"""What an access point answers: the operational gateways for a bearer, in order of preference (G1, G2)."""

from collections.abc import Callable
from random import Random

from gateway.members.ranking import ConnectPoint, connect_points, ranked
from gateway.members.table import MemberTable
from schemas.member_settings import AccessPointSettings


class AccessPoint:
    """`now` gives monotonic seconds, the same as those in `table`."""

    def __init__(
        self, table: MemberTable, settings: AccessPointSettings, random: Random, now: Callable[[], float]
    ) -> None:
        self._table = table
        self._settings = settings
        self._random = random
        self._now = now

    @property
    def is_enabled(self) -> bool:
        """Whether clients may ask here (G12)."""
        return self._settings.enabled

    @property
    def fresh_s(self) -> int:
        """For how many seconds an answer may be used."""
        return self._settings.fresh_s

    def connect_points(self, bearer: str) -> list[ConnectPoint]:
        """Where a client may connect, the best first; none if no operational gateway has the bearer."""
        members = self._table.operational(self._now())
        order = ranked(members, self._settings.strategy, self._settings.equal_within, self._random)
        return connect_points(order, bearer)
