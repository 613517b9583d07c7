"""`waystation status --watch`, and the version."""

import os
import re
import signal
from collections.abc import Callable, Iterator

import pytest

from jobs.cli.watch import watch
from jobs.errors import StackError

Run = Callable[..., int]


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Those of the test's own process are as they were."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_it_looks_until_it_is_interrupted(capfd: pytest.CaptureFixture[str]) -> None:
    seen: list[int] = []

    def show(number: int) -> None:
        seen.append(number)
        if number == 3:
            os.kill(os.getpid(), signal.SIGINT)

    watch(lambda: len(seen) + 1, show, 0.001)
    assert seen == [1, 2, 3]
    assert "\x1b" not in capfd.readouterr().out, "no control characters in a file"


def test_a_stack_that_is_away_meanwhile_does_not_end_it(capfd: pytest.CaptureFixture[str]) -> None:
    looks = iter(["first", StackError("no stack is running in /x"), "third"])

    def read() -> str:
        found = next(looks)
        if isinstance(found, StackError):
            raise found
        return found

    shown: list[str] = []

    def show(found: str) -> None:
        shown.append(found)
        if found == "third":
            os.kill(os.getpid(), signal.SIGTERM)

    watch(read, show, 0.001)
    assert shown == ["first", "third"]
    assert "no stack is running in /x" in capfd.readouterr().out


def test_an_error_of_the_first_look_is_the_commands(run: Run, capfd: pytest.CaptureFixture[str]) -> None:
    assert run("status", "--watch") == 1
    assert "no stack is running in" in capfd.readouterr().err


def test_the_version(run: Run, capfd: pytest.CaptureFixture[str]) -> None:
    assert run("--version") == 0
    assert re.fullmatch(r"waystation \d+\.\d+\.\d+\S*\n", capfd.readouterr().out)
