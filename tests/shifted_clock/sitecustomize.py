"""Shifts the clock of a Python process: with this directory on PYTHONPATH, Python runs it before the program.

TEST_CLOCK_OFFSET_S seconds are added to `time.time` and `time.time_ns`. Clocks that only go forward stay as they are,
as on a machine whose clock is wrong.
"""

import os
import time

_OFFSET_S = float(os.environ.get("TEST_CLOCK_OFFSET_S", "0"))
_time, _time_ns = time.time, time.time_ns

if _OFFSET_S:
    time.time = lambda: _time() + _OFFSET_S
    time.time_ns = lambda: _time_ns() + int(_OFFSET_S * 1e9)
