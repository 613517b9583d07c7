"""The demo's own stack: how its start is shown."""

import io
from types import SimpleNamespace

from jobs.demo.stack import _Starting

OUTPUT = """\
starting the local stack in /data
  broker         ready after 3.1 s
ready in 20.0 s
listeners
Try:
  waystation status
"""


def test_the_parts_are_shown_as_they_start_and_nothing_that_follows() -> None:
    """The commands that `up` suggests are for a stack that stays; the demo suggests its own."""
    starting = object.__new__(_Starting)
    starting._child = SimpleNamespace(stdout=io.StringIO(OUTPUT), stderr=io.StringIO(), wait=lambda: 0)  # type: ignore[assignment]
    said: list[str] = []
    starting.wait(said.append)
    assert said == ["  broker         ready after 3.1 s"]
