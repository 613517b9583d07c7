"""The wall clock of the time stamps."""

import time


def now_us() -> int:
    """Microseconds since 1970 UTC."""
    return time.time_ns() // 1000
