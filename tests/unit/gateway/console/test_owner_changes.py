"""Changes of owners: which of them are takeovers, why, and how long they took."""

from gateway.cluster.lease_table import Lease
from gateway.console.owner_changes import KEPT, OwnerChanges
from schemas.leases import Claimant

A, B = Claimant("a", 1), Claimant("b", 1)
NOBODY = Lease(0)
OF_A = Lease(0, 1, A, ("b",), True)


def test_reasons() -> None:
    """Q9: an orderly move is told from a loss, and neither from a process that claims its own shard again."""
    released = Lease(0, 2, None, (), False, A, "b")
    cases = [
        (NOBODY, Lease(0, 1, A), None, "first"),
        (OF_A, Lease(0, 2, B), A, "lost"),
        (OF_A, Lease(0, 2, Claimant("a", 2)), A, "lost"),
        (released, Lease(0, 3, B), A, "planned"),
        (released, Lease(0, 3, A), A, "again"),
        (OF_A, Lease(0, 2, A), A, "again"),
        (Lease(0, 5), Lease(0, 6, B), None, "lost"),
    ]
    for before, after, previous, reason in cases:
        changes = OwnerChanges("x")
        changes.changed(before, after, 1.0)
        (change,) = changes
        assert (change.previous, change.owner, change.epoch, change.reason) == (
            previous,
            after.owner,
            after.epoch,
            reason,
        )
        assert change.served_after_s is None
        assert changes.totals == {"planned": 0, "lost": 0}, "others have taken over"


def test_a_release_and_other_standbys_change_no_owner() -> None:
    changes = OwnerChanges("a")
    changes.changed(OF_A, OF_A._replace(standbys=("c",)), 1.0)
    changes.changed(OF_A, Lease(0, 2, None, (), False, A, "b"), 2.0)
    assert len(changes) == 0


def test_how_long_it_takes_to_serve_is_measured_once() -> None:
    changes = OwnerChanges("b")
    claimed = Lease(0, 2, B, ("b",))
    changes.changed(OF_A, claimed, 10.0)
    assert [change.served_after_s for change in changes] == [None]
    fenced = claimed._replace(is_fenced=True)
    changes.changed(claimed, fenced, 10.25)
    changes.changed(fenced, fenced._replace(standbys=()), 99.0)
    (change,) = changes
    assert change.served_after_s == changes.last_s == 0.25
    assert changes.totals == {"planned": 0, "lost": 1}


def test_the_newest_are_kept_and_come_first() -> None:
    changes = OwnerChanges("x")
    for epoch in range(1, KEPT + 6):
        owner = (A, B)[epoch % 2]
        changes.changed(Lease(0, epoch - 1, (A, B)[1 - epoch % 2]), Lease(0, epoch, owner), float(epoch))
    assert len(changes) == KEPT
    assert [change.epoch for change in changes] == list(range(KEPT + 5, 5, -1))
    changes.changed(Lease(0, 1, A), Lease(0, 1, A, (), True), 1000.0)  # of one that is forgotten
    assert len(changes) == KEPT
