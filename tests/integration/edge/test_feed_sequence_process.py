"""`waystation feed sequence` as a process in a pipeline, killed with SIGKILL at drawn moments (S2)."""

import os
import subprocess
import sys
from pathlib import Path

from edge.feeds.formats.json_lines import json_lines
from edge.feeds.formats.lines import LineParser
from edge.feeds.source import SourceMessage
from feeds.line_mapping import LineMapping
from tests.draw import generator, times

ROOT = Path(__file__).parents[3]
KILLS = 2
LOOP = """
import sys
from pathlib import Path
from edge.feeds.sequence_command import sequence
sequence(0, 1, Path(sys.argv[1]), 51, block=7)
"""
COMMAND = (
    "import sys; from edge.cli.main import main; sys.argv[:1] = ['waystation', 'feed', 'sequence', '--state']; main()"
)


def start(code: str, state: Path, output: Path) -> "subprocess.Popen[bytes]":
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-c", code, str(state)]
    with output.open("ab") as into:
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=into, env=environment)


def test_a_number_is_never_used_twice_whenever_it_is_killed(tmp_path: Path) -> None:
    """What was written before each kill is followed by greater numbers, and a line begins at its beginning; both
    receivers of the file read the same."""
    draws, state, output = generator("killed sequencer"), tmp_path / "numbers.json", tmp_path / "lines"
    sent, kills = 0, times(KILLS, 30)
    for _ in range(kills):
        process = start(LOOP, state, output)
        assert process.stdin is not None
        size_before = output.stat().st_size
        while output.stat().st_size == size_before or draws.random() < 0.98:
            process.stdin.write(b'{"line":%d}\n' % sent)
            process.stdin.flush()
            sent += 1
            assert process.poll() is None
        process.kill()
        process.wait()
        process.stdin.close()
    process = start(COMMAND, state, output)
    process.communicate(b'{"line":"last"}', timeout=60)
    assert process.returncode == 0

    receiver = LineParser(json_lines(LineMapping(is_numbered=True)), "pipe", is_numbered=True)
    found = receiver.feed(output.read_bytes())
    assert not receiver.end()
    numbers = [one.number for one in found if one.number is not None]
    assert numbers == sorted(set(numbers))
    messages = [one for one in found if isinstance(one, SourceMessage)]
    assert {one.stream for one in messages} == {"pipe@51"}
    assert len(found) - len(messages) <= kills  # the last line before each may be torn
    assert messages[-1].payload == b'{"line":"last"}'
