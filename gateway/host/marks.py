"""When reading stops and goes on: at a high mark and at half of it, so that it does not change with each message."""


def is_above(number: int, most: int, half: bool) -> bool:
    """Whether `number` has reached `most`; or, with `half`, is still above the half of it."""
    return number > most // 2 if half else number >= most
