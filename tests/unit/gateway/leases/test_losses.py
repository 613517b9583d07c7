"""A loss is a claim without a release, and each lost process is reported once (G14)."""

from gateway.cluster.lease_table import Lease, LeaseTable
from gateway.leases.losses import Losses
from schemas.leases import Claim, Claimant, LeaseKey, LeaseValue, Release, Standbys

A, B, C = Claimant("a", 1), Claimant("b", 1), Claimant("c", 1)


class Log:
    """Leases of two shards, and who was lost."""

    def __init__(self) -> None:
        self.table, self.lost = LeaseTable(2), list[Claimant]()
        self._losses, self._offset = Losses(self.lost.append), 0

    def write(self, kind: str, shard: int, epoch: int, who: Claimant, value: LeaseValue | None) -> None:
        before: Lease = self.table[shard]
        self.table.apply(self._offset, LeaseKey(kind, shard, epoch, who), value)
        self._offset += 1
        self._losses.changed(before, self.table[shard])

    def claim(self, shard: int, epoch: int, who: Claimant) -> None:
        self.write("c", shard, epoch, who, Claim())


def test_a_claim_over_an_owner_is_a_loss_reported_once() -> None:
    log = Log()
    log.claim(0, 1, A)
    log.claim(1, 1, A)
    log.claim(0, 2, B)
    log.claim(1, 2, C)
    assert log.lost == [A]


def test_a_process_that_got_a_shard_again_can_be_lost_again() -> None:
    """It was taken for dead while Kafka was slow, and lives: its clients come again when it is killed one day. What it
    says of a shard that it still had is no such thing."""
    log = Log()
    log.claim(0, 1, A)
    log.claim(1, 1, A)
    log.claim(0, 2, B)
    log.write("s", 1, 1, A, Standbys(names=["b"]))
    log.claim(1, 2, B)
    assert log.lost == [A]
    log.write("c", 0, 3, B, Release(successor="a"))
    log.claim(0, 4, A)
    assert log.lost == [A]
    log.claim(0, 5, B)
    assert log.lost == [A, A]


def test_a_later_process_of_the_same_name_has_lost_the_earlier_one() -> None:
    log = Log()
    log.claim(0, 1, A)
    log.claim(0, 2, Claimant("a", 2))
    log.claim(0, 3, B)
    assert log.lost == [A, Claimant("a", 2)]


def test_moves_first_claims_and_repeated_claims_are_none() -> None:
    log = Log()
    log.claim(0, 1, A)
    log.claim(0, 2, A)
    log.write("s", 0, 2, A, Standbys(names=["b"]))
    log.write("c", 0, 3, A, Release(successor="b"))
    log.claim(0, 4, B)
    log.write("c", 0, 1, A, None)
    assert log.lost == []


def test_a_late_claim_of_a_lower_epoch_is_none() -> None:
    log = Log()
    log.claim(0, 5, A)
    log.claim(0, 4, B)
    assert log.lost == []
