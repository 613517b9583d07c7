"""What a file system is asked for beyond writing (M2)."""

import errno
import os
from pathlib import Path
from threading import Thread

import pytest

from edge.durable import has_space


def test_threads_ask_for_space_in_a_folder_at_the_same_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of one agent are in one folder, each with a thread of its own."""
    answers: list[bool] = []
    others = [Thread(target=lambda: answers.append(has_space(tmp_path)))]

    def write(descriptor: int, data: bytes) -> int:
        while others:
            other = others.pop()
            other.start()
            other.join()
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", write)
        answers.append(has_space(tmp_path))
    assert answers == [False, False]
    assert has_space(tmp_path)
    assert not list(tmp_path.iterdir())
