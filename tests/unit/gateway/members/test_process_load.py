"""The load of this process (G2)."""

from pathlib import Path

import pytest

from gateway.members.process_load import CpuShare, ProcessLoad, memory_limit


def test_processor_time_is_averaged_over_a_window() -> None:
    share = CpuShare(window_s=2.0)
    assert share.update(100.0, 7.0) == 0.0
    assert share.update(101.0, 7.5) == 0.5
    assert share.update(102.0, 9.5) == 1.25
    assert share.update(103.0, 9.5) == 1.0, "the first second no longer counts"
    assert share.update(110.0, 9.5) == 0.0
    assert share.update(110.0, 9.5) == 0.0, "no time has passed"


def test_it_remembers_no_more_than_the_window() -> None:
    share = CpuShare(window_s=2.0)
    for n in range(1_000):
        share.update(n * 0.2, n * 0.1)
    assert len(share._samples) <= 12
    assert share.update(200.0, 100.0) == pytest.approx(0.5)


def test_a_container_has_less_memory_than_its_machine(tmp_path: Path) -> None:
    limit = tmp_path / "memory.max"
    assert memory_limit(1_000, (limit,)) == 1_000
    limit.write_text("max\n")
    assert memory_limit(1_000, (limit,)) == 1_000
    limit.write_text("400\n")
    assert memory_limit(1_000, (tmp_path / "none", limit)) == 400
    limit.write_text("9223372036854771712\n")
    assert memory_limit(1_000, (limit,)) == 1_000, "no limit, in version 1 of control groups"


def test_it_measures_this_process() -> None:
    measured = ProcessLoad().measure(12)
    assert measured.connections == 12
    assert measured.memory_bytes > 1_000_000
    assert 0 < measured.memory <= 1
    assert measured.cpu == 0.0
