"""Which standbys of one's own shards are warm, from the heartbeats of the others (Q7, Q9). Pure.

The keeper of leases wants to know when a standby becomes ready and when it ceases to be. Heartbeats say what is so, and
each may be the first that is read. So what was told is remembered, by member and by the epoch in which the shard is
owned: at the beginning of an epoch the keeper knows of no standby, and all are told again.
"""

from collections.abc import Mapping

from gateway.cluster.lease_messages import StandbyNotReady, StandbyReady
from schemas.members import Heartbeat


class StandbyEvents:
    """Of one gateway. At most as many members are remembered as are not forgotten: see :meth:`forget`."""

    def __init__(self, me: str) -> None:
        self._me = me
        self._newest: dict[str, tuple[int, int]] = {}
        self._told: dict[str, dict[int, int]] = {}

    def heard(self, name: str, record: Heartbeat, owned: Mapping[int, int]) -> list[StandbyReady | StandbyNotReady]:
        """A heartbeat was read. `owned`: the epoch of each shard that this gateway owns now. An older record than one
        that was read says nothing."""
        if name == self._me or (record.boot, record.seq) <= self._newest.get(name, (-1, -1)):
            return []
        self._newest[name] = record.boot, record.seq
        serves = record.state in ("joining", "up")
        ready = {shard: owned[shard] for shard in record.warm if shard in owned} if serves else {}
        before = self._told.pop(name, {})
        if ready:
            self._told[name] = ready
        return [
            *(StandbyNotReady(shard, name) for shard in before if shard in owned and shard not in ready),
            *(StandbyReady(shard, name) for shard, epoch in ready.items() if before.get(shard) != epoch),
        ]

    def forget(self, name: str, owned: Mapping[int, int]) -> list[StandbyReady | StandbyNotReady]:
        """The member is not on the topic any more, or is lost."""
        self._newest.pop(name, None)
        return [StandbyNotReady(shard, name) for shard in self._told.pop(name, {}) if shard in owned]
