"""How often things happened in a process."""

from collections import Counter
from typing import TypeVar

T = TypeVar("T")


class Counts(Counter[T]):
    """A Counter that is as fast as a dict. `Counter` overrides `__delitem__`; setting an item is the same slot of the
    type, so it looks for a method in Python: that takes three times as long, for each message."""

    __delitem__ = dict.__delitem__  # type: ignore[assignment]
