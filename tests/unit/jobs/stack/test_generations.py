"""Which checkpoint of a router counts (R5)."""

from pathlib import Path

from jobs.stack.generations import generation_of, next_generation, prune, record


def checkpoints(data: Path, *names: str) -> None:
    for name in names:
        (data / "tables" / "_checkpoints" / name).mkdir(parents=True, exist_ok=True)


def left(data: Path) -> set[str]:
    return {path.name for path in (data / "tables" / "_checkpoints").iterdir()}


def test_a_fresh_directory_begins_with_the_first(tmp_path: Path) -> None:
    assert generation_of(tmp_path, ["active", "backup"]) == 1
    assert next_generation(tmp_path, ["active"]) == 2


def test_a_generation_is_never_used_twice(tmp_path: Path) -> None:
    """What a replacement that came to nothing has left may be far behind."""
    record(tmp_path, ["active"], 1)
    checkpoints(tmp_path, "router-active-1", "router-active-2", "completion-7")
    assert generation_of(tmp_path, ["active"]) == 1
    assert next_generation(tmp_path, ["active"]) == 3


def test_each_role_has_its_own_and_a_process_with_both_the_higher(tmp_path: Path) -> None:
    record(tmp_path, ["active"], 4)
    record(tmp_path, ["backup"], 2)
    assert [generation_of(tmp_path, roles) for roles in (["active"], ["backup"], ["active", "backup"])] == [4, 2, 4]


def test_the_record_lost_the_youngest_checkpoint_counts(tmp_path: Path) -> None:
    checkpoints(tmp_path, "router-active-2", "router-active-10")
    assert generation_of(tmp_path, ["active"]) == 10


def test_pruned_is_what_nothing_can_begin_from(tmp_path: Path) -> None:
    """The one before the present is kept: until the present has committed a batch, it begins there."""
    checkpoints(tmp_path, *(f"router-active-{number}" for number in (1, 3, 5, 6)), "router-backup-1", "completion-1")
    checkpoints(tmp_path, "router-active-standby-1", "router-active-standby-5")
    record(tmp_path, ["active", "backup"], 5)
    prune(tmp_path, ["active", "backup"])
    assert left(tmp_path) == {
        "router-active-3",
        "router-active-5",
        "router-active-standby-5",
        "router-backup-1",
        "completion-1",
    }
