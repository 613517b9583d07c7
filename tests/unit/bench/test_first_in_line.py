"""Clients that measure go before what they measure; what they start does not."""

import os
import sys

import pytest

from bench.subscriber import first_in_line


@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_where_it_is_not_to_be_had_it_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], platform: str
) -> None:
    def refused(_process: int, policy: int, _parameter: object) -> None:
        if policy != os.SCHED_OTHER:
            raise PermissionError

    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(os, "sched_setscheduler", refused)
    with first_in_line():
        pass
    assert "as root" in capsys.readouterr().err
