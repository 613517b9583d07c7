"""Counts are a Counter."""

import pytest

from gateway.counts import Counts


def test_what_was_never_counted_is_0_and_not_there() -> None:
    counts = Counts()
    assert counts["lost"] == 0
    assert "lost" not in counts
    counts["lost"] += 2
    counts.update(lost=1, kept=1)
    assert dict(counts) == {"lost": 3, "kept": 1}


def test_deleting_is_that_of_a_dict() -> None:
    """What makes it fast."""
    counts = Counts(lost=1)
    del counts["lost"]
    with pytest.raises(KeyError):
        del counts["lost"]
