"""Which agent is the only carrier of a device, and until when. Pure: `now` is a time in seconds that never goes back.

The agent that gets a device's first bundle is its carrier for `carrier_s`. Asking again does not prolong that: after
it, the next one that asks is the carrier, be it the same. So every agent that goes on asking gets copies in the end.
"""

from collections import OrderedDict
from typing import NamedTuple


class Lease(NamedTuple):
    """Whose it is, and until when."""

    agent: str
    until: float


class Carriers:
    """The leases of at most `most` devices; beyond that the earliest is forgotten. None are given if `carrier_s` is
    0."""

    def __init__(self, carrier_s: float, most: int) -> None:
        self._carrier_s = carrier_s
        self._most = most
        self._leases: OrderedDict[str, Lease] = OrderedDict()  # in the order of their ends

    def __len__(self) -> int:
        return len(self._leases)

    def remaining_s(self, device: str, agent: str, now: float) -> float:
        """For how long another agent carries for the device; 0 if none does."""
        lease = self._leases.get(device)
        return 0.0 if lease is None or lease.agent == agent else max(0.0, lease.until - now)

    def begin(self, device: str, agent: str, now: float) -> bool:
        """Whether the agent carries for the device now."""
        if self.remaining_s(device, agent, now):
            return False
        lease = self._leases.get(device)
        if self._carrier_s and (lease is None or now >= lease.until):
            self._leases[device] = Lease(agent, now + self._carrier_s)
            self._leases.move_to_end(device)
            while len(self._leases) > self._most or next(iter(self._leases.values())).until <= now:
                self._leases.popitem(last=False)
        return True
