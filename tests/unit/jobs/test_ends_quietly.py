"""A command that does not lose its reader ends with its own status."""

import pytest

from jobs.output import ends_quietly


def test_other_ends_keep_their_status() -> None:
    def ends_with(status: int) -> int:
        raise SystemExit(status)

    assert [ends_quietly(lambda: 3), ends_quietly(lambda: ends_with(2))] == [3, 2]
    with pytest.raises(ConnectionResetError):
        ends_quietly(_reset)


def _reset() -> int:
    raise ConnectionResetError("not of the output")
