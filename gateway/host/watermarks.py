"""Watermarks for reading: pause at the limit, resume at half of it, so as not to switch with each message."""


def is_above(number: int, most: int, half: bool) -> bool:
    """Whether `number` has reached `most`; with `half`, whether it is still above half of it."""
    return number > most // 2 if half else number >= most
