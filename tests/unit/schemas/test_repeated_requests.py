"""Requests that are sent again (R6)."""

import pytest

from schemas.receipts import KINDS
from schemas.repeated_requests import repeated

MARK = ("request-repeated", "true")


@pytest.mark.parametrize("kind", KINDS)
def test_they_have_a_mark_and_ask_for_no_receipt(kind: str) -> None:
    """Q13: a receipt is about one message; an application's own property of that name stays."""
    pairs = [("a", "b"), ("receipt", kind), ("receipt", "own"), ("a", "b")]
    assert repeated(iter(pairs)) == [("a", "b"), ("receipt", "own"), ("a", "b"), MARK]
