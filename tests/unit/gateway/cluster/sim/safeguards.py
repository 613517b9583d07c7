"""Each rule that makes a change of owner safe, and how to switch it off: then some run must fail.

A safeguard is switched off by replacing the one function that has it. `seed` is a run that fails without it, so that
checking all of them is cheap; `find_seed` (:mod:`tests.unit.gateway.cluster.sim.safeguard`) finds another one when the
simulation has changed. Those of share groups are in :mod:`tests.unit.gateway.cluster.sim.share_safeguards`.
"""

from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

from gateway.cluster import lease_keeper
from gateway.cluster import lease_messages as m
from gateway.cluster.fencing import PartitionFences, SenderFences
from gateway.cluster.lease_keeper import LeaseKeeper
from gateway.cluster.lease_table import LeaseTable
from gateway.cluster.life import Life
from gateway.cluster.read_back import ReadBack
from tests.unit.gateway.cluster.sim.home import Home
from tests.unit.gateway.cluster.sim.process import Process
from tests.unit.gateway.cluster.sim.safeguard import Safeguard

_claim = LeaseKeeper._claim
_settle = LeaseKeeper._settle
_take = LeaseKeeper._take
_home_begin = Home.begin
_notice_stall = Life._notice_stall
_is_silent = Life._is_silent


def _begins_with_its_claim(self: LeaseKeeper, shard: int, now: float, **named: bool) -> Iterator[m.LeaseEffect]:
    yield from _claim(self, shard, now, **named)
    self._enter(self._shards[shard], "starting", self._shards[shard].tried)
    yield m.Begin(shard, self._shards[shard].tried)


def _begins_whenever_it_reads_its_claim(self: LeaseKeeper, shard: int, now: float) -> Iterator[m.LeaseEffect]:
    self._shards[shard].written.clear()
    with patch.object(self, "_is_verifying", False):
        effects = list(_settle(self, shard, now))
    yield from effects


def _same_epoch_again(self: LeaseKeeper, shard: int) -> int:
    state = self._shards[shard]
    return max(1 + max(self._table[shard].epoch, state.fence), state.tried)


def _own_epoch_again(self: LeaseKeeper, shard: int) -> int:
    """Also a release, and a claim after it, are written in the epoch of the claim before."""
    state, lease = self._shards[shard], self._table[shard]
    mine = lease.owner == self._me or lease.released_by == self._me
    return lease.epoch if mine else 1 + max(lease.epoch, state.fence, state.tried)


def _fences_ingress_first(self: Home) -> None:
    self.fence_ingress = lambda: None  # type: ignore[method-assign]
    left = list(range(self.site.partitions))

    def stored(_: int | None) -> None:
        left.pop()
        if not left and not self.is_over:
            _home_begin(self)

    for partition in list(left):
        fence = ((self.shard, self.epoch),)
        self.process.produce(("ingress", partition), b"", fence, self.epoch, True, stored)


def _acknowledges_what_kafka_has(self: Home, session: Any, message: Any, offset: int) -> None:
    if not self.is_over:
        session.received[message.pid] = True
        session.until = max(session.until, offset + 1)
        self._send(session, "pubrec", message.pid, message)


def _serves_without_reading(self: Home) -> None:
    _home_begin(self)
    self._state_read()
    self._serve()


def _claims_only_what_nobody_owns(lease: Any, *_: Any) -> bool:
    return lease.owner is None


def _knows_no_fences(self: LeaseKeeper, event: Any, now: float) -> Any:
    return iter(()) if isinstance(event, m.FenceRead | m.Outranked) else _take(self, event, now)


def _takes_a_lost_link_for_death(self: Life, name: str, boot: int | None) -> list[Any]:
    member = self._members.get(name)
    if member is not None and boot in (None, member.boot):
        member.refused_at = self._stepped_at
    return []


def _takes_a_silent_link_for_death(self: Life, of: Any, member: Any) -> bool:
    has_link = self._stepped_at is not None and self.has_link(of.name, self._stepped_at)
    return not has_link or _is_silent(self, of, member)


def _trusts_a_link(self: Life, of: Any, member: Any) -> bool:
    has_link = self._stepped_at is not None and self.has_link(of.name, self._stepped_at)
    return not has_link and _is_silent(self, of, member)


def _takes_its_own_silence_for_that_of_others(self: Life, now: float) -> None:
    _notice_stall(self, now)
    if self._read_at is not None:
        self._read_at = now


SAFEGUARDS = (
    Safeguard("a member owns a shard once it has read its own claim", LeaseKeeper, "_claim", _begins_with_its_claim, 1),
    Safeguard(
        "a claim that is read late is verified",
        LeaseKeeper,
        "_settle",
        _begins_whenever_it_reads_its_claim,
        6_556_104,
    ),
    Safeguard(
        "of claims of one epoch the lowest offset wins",
        LeaseTable,
        "_precedence",
        staticmethod(lambda key, claimed: (-key.epoch, -claimed.offset)),
        624_306,
    ),
    Safeguard(
        "of claims of several epochs the highest wins",
        LeaseTable,
        "_precedence",
        staticmethod(lambda key, claimed: (key.epoch, claimed.offset)),
        0,
    ),
    Safeguard("a claim is never written again", LeaseKeeper, "_next_epoch", _same_epoch_again, 6_279_901),
    Safeguard("a release has an epoch of its own", LeaseKeeper, "_next_epoch", _own_epoch_again, 1_319_474),
    Safeguard("a new epoch is above all fences", LeaseKeeper, "_take", _knows_no_fences, 24),
    Safeguard(
        "the winning claim has no tombstone",
        LeaseTable,
        "outdated",
        lambda self, shard: [key for key in self._claims[shard] if key.epoch <= self._leases[shard].epoch],
        2_089_363,
    ),
    Safeguard(
        "a tombstone says that there is a higher epoch", LeaseTable, "_is_superseded", lambda *_: False, 3_677_712
    ),
    Safeguard("readers ignore lower epochs behind a fence", PartitionFences, "_is_void", lambda *_: False, 2_498_399),
    Safeguard(
        "homes drop QoS 2 messages of a lower epoch behind the fence",
        SenderFences,
        "is_dropped",
        lambda *_: False,
        2_814_298,
    ),
    Safeguard(
        "QoS 1 messages of a lower epoch pass",
        SenderFences,
        "is_dropped",
        lambda self, p, offset, shard, epoch, qos, is_will: epoch < self.epoch_at(p, offset, shard),
        6_739_834,
    ),
    Safeguard("fences are part of a position", SenderFences, "seen", lambda *_: {}, 4_748_349),
    Safeguard(
        "a fence concerns what stands behind it",
        SenderFences,
        "epoch_at",
        lambda self, p, offset, shard: max((f.epoch for f in self._seen.get(p, {}).get(shard, ())), default=0),
        2_106_382,
    ),
    Safeguard("a promise holds once it is read back", ReadBack, "_holds", lambda *_: True, 6_877_801),
    Safeguard("PUBREC waits for a barrier", Home, "stored", _acknowledges_what_kafka_has, 48),
    Safeguard(
        "a higher fence ends what is promised",
        ReadBack,
        "fence",
        lambda self, offset, epoch: self.read(offset),
        6_247_817,
    ),
    Safeguard(
        "the fence on sessions is stored before the one on ingress is written",
        Home,
        "begin",
        _fences_ingress_first,
        6_995_275,
    ),
    Safeguard("an owner reads up to its fences before it serves", Home, "begin", _serves_without_reading, 0),
    Safeguard(
        "what a void record has overwritten is rewritten",
        PartitionFences,
        "unmended",
        property(lambda self: []),
        854_708,
    ),
    Safeguard("losing a link is not death", Life, "_link_ended", _takes_a_lost_link_for_death, 13),
    Safeguard(
        "a silent link is not death while records come", Life, "_is_silent", _takes_a_silent_link_for_death, 3_148_865
    ),
    Safeguard(
        "an owner that is cut off from the log is suspect, though its link is alive",
        Life,
        "_is_silent",
        _trusts_a_link,
        881_366,
    ),
    Safeguard("an owner that is silent is suspect", Life, "_is_silent", lambda *_: False, 7_165_282),
    Safeguard(
        "a member whose machine refuses a connection is dead at once", Life, "_redialled", lambda *_: None, 7_386_482
    ),
    Safeguard(
        "who reads nothing accuses nobody", Life, "_notice_stall", _takes_its_own_silence_for_that_of_others, 3_755_219
    ),
    Safeguard("a process that stood still verifies its leases", LeaseKeeper, "_notice_stall", lambda *_: [], 5_137_130),
    Safeguard("a home ends when another owns its shard", Process, "_end", lambda *_: None, 6_169_387),
    Safeguard(
        "a shard whose owner is suspect is claimed", lease_keeper, "may_be_claimed", _claims_only_what_nobody_owns, 1
    ),
)
