"""The recording of the feeds' demo: downloaded once, checked, and a clear error if it cannot be had (S2)."""

import hashlib
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from jobs.demo import feed_sample
from jobs.demo.errors import DemoError
from jobs.demo.feed_sample import DIRECTORY, MEMBER, REQUIREMENT, sample
from tools.install import pinned
from tools.install_feed_samples import DIRECTORY as OF_THE_TESTS
from tools.install_feed_samples import WHEELS

CONTENT = b"a recording\n"


class Pip:
    """Puts a wheel with `content` into the directory, or fails."""

    def __init__(self, content: bytes | None = CONTENT, member: str = MEMBER) -> None:
        self._content, self._member, self.calls = content, member, 0

    def __call__(self, command: Sequence[str], directory: Path) -> int:
        self.calls += 1
        assert REQUIREMENT in command
        if self._content is None:
            return 1
        with zipfile.ZipFile(directory / "traffic.whl", "w") as wheel:
            wheel.writestr(self._member, self._content)
        return 0


@pytest.fixture
def environ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.setattr(feed_sample, "SHA256", hashlib.sha256(CONTENT).hexdigest())
    return {"WAYSTATION_CACHE": str(tmp_path)}


def test_it_is_downloaded_once(environ: dict[str, str]) -> None:
    pip, said = Pip(), list[str]()
    path = sample(environ, said.append, pip)
    assert path.read_bytes() == CONTENT
    assert sample(environ, said.append, pip) == path
    assert (pip.calls, len(said)) == (1, 1)


def test_a_damaged_one_is_downloaded_again(environ: dict[str, str]) -> None:
    path = sample(environ, lambda _: None, Pip())
    path.write_bytes(CONTENT[:-1])
    assert sample(environ, lambda _: None, Pip()).read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("pip", "what"),
    [
        (Pip(None), "cannot be downloaded.*make samples"),
        (Pip(b"another"), "not the file"),
        (Pip(member="other"), "has no"),
    ],
)
def test_what_cannot_be_had_is_said_and_nothing_is_kept(environ: dict[str, str], pip: Pip, what: str) -> None:
    with pytest.raises(DemoError, match=what):
        sample(environ, lambda _: None, pip)
    assert not list(Path(environ["WAYSTATION_CACHE"]).rglob("*.jsonl"))


def test_it_is_the_one_that_make_samples_downloads() -> None:
    assert pinned("traffic").split()[0] == REQUIREMENT
    assert WHEELS["traffic"] == (MEMBER,)
    assert DIRECTORY == OF_THE_TESTS
