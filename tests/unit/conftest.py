"""Unit tests start no programs of Waystation: tests that do are integration tests."""

import os
import sys
from typing import Any


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "subprocess.Popen" and arguments[0] == sys.executable:
        test = os.environ.get("PYTEST_CURRENT_TEST", "")
        # The last test's teardown is also that of the whole session, with its broker and Spark session.
        if test.startswith("tests/unit/") and not test.endswith("(teardown)"):
            raise RuntimeError(f"{test} starts a process: move it to tests/integration")


sys.addaudithook(_refuse)
