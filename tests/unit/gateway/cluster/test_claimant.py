"""Who may claim a shard, and after how long (G6, Q7)."""

import pytest

from gateway.cluster.claimant import may_be_claimed
from gateway.cluster.lease_table import Lease, LeaseTable
from gateway.cluster.life import Heard, Life
from gateway.cluster.timings import LeaseTimings, LifeTimings
from schemas.leases import Claim, Claimant, LeaseKey, Standbys

ME, OWNER = Claimant("me", 1), Claimant("owner", 1)


def alive(now: float) -> Life:
    """Both have been heard of until `now`."""
    life = Life(ME, LifeTimings())
    for beat in range(int(now * 10) + 1):
        for name in ("me", "owner"):
            life.step(Heard(name, 1, beat, "up"), beat / 10)
    return life


@pytest.mark.parametrize(("unfenced", "patience_s"), [(0, 2.0), (1, 4.0), (3, 16.0), (4, 32.0), (9, 32.0)])
def test_patience_grows_while_no_owner_makes_it(unfenced: int, patience_s: float) -> None:
    """Starts that are slow everywhere are not made slower by claims in turn."""
    lease = Lease(0, 10, OWNER, unfenced=unfenced)
    for late_s, is_claimed in [(-0.2, False), (0.2, True)]:
        now = patience_s + late_s
        assert may_be_claimed(lease, ME, alive(now), 0.0, now, LeaseTimings()) is is_claimed


def test_an_owner_that_has_named_standbys_has_made_it() -> None:
    lease = Lease(0, 10, OWNER, is_fenced=True, unfenced=0)
    assert not may_be_claimed(lease, ME, alive(60.0), 0.0, 60.0, LeaseTimings())


def test_epochs_without_fences_are_counted_from_the_last_with() -> None:
    table, offset = LeaseTable(1), 0
    counted = []
    for epoch, is_fenced in [(1, True), (2, False), (3, False), (4, True), (6, False)]:
        key = LeaseKey("c", 0, epoch, Claimant(f"g{epoch}", 1))
        table.apply(offset, key, Claim())
        counted.append(table[0].unfenced)
        if is_fenced:
            table.apply(offset + 1, key._replace(kind="s"), Standbys(names=["x"]))
        offset += 2
    assert counted == [0, 0, 1, 2, 1]
