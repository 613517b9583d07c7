"""The lists of JVM libraries are what the wanted ones resolve to, asked of the real repository."""

import subprocess
import sys

import pytest


@pytest.mark.timeout(1800)
@pytest.mark.drawn("lists resolved again", 0)
def test_the_lists_are_what_is_wanted_with_all_that_it_depends_on() -> None:
    check = subprocess.run([sys.executable, "-m", "tools.lock_jars", "--check"], capture_output=True, text=True)
    assert check.returncode == 0, check.stdout + check.stderr
