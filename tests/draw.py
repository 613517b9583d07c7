"""Long matrices of tests: `make soak` (SOAK=1) runs all of them, any other run some cases that it draws by its seed,
and `make check` (QUICK=1) fewer, and of the unit tests not all (tests/quick.py). Of Hypothesis' examples either takes a
fifth.

The seed is TEST_SEED, or another one each time; it is printed in the header, and at the end if a test has failed. With
the same seed a run draws the same again, Hypothesis' inputs included. Tests that are named on the command line
(`pytest FILE::TEST`, `-k`) are never left out.
"""

import math
import os
import random
from collections import defaultdict
from collections.abc import Sequence
from fractions import Fraction
from typing import TypeVar

import pytest
from hypothesis import settings

T = TypeVar("T")

SOAK = os.environ.get("SOAK", "") not in ("", "0")
QUICK = os.environ.get("QUICK", "") not in ("", "0")
QUICK_PART = 5
"""The divisor of what a quick run draws, and of Hypothesis' examples in any run that is not SOAK."""
EXAMPLES_PART = Fraction(1) if SOAK else Fraction(1, QUICK_PART)
"""Of Hypothesis' examples: each run has other ones."""

SEED = int(os.environ.setdefault("TEST_SEED", str(random.SystemRandom().randrange(1_000_000))))
"""Also in the environment, so that all processes of a run (pytest-xdist) draw the same."""

MARKER = "drawn"

long_test = pytest.mark.drawn("long tests", 2)
"""Takes about half a minute or more on two busy processors."""

over_processes = pytest.mark.drawn("feeds and the mesh over processes and a broker", 1)
"""Adapters, subscribers, agents and gateways as processes that are killed, frozen or cut off."""

killed_or_replaced = pytest.mark.drawn("parts of a stack killed or replaced", 1)
"""One of the ways in which a stack under load, or an application on a cluster, loses a part or gets a new one."""

site_of_gateways = pytest.mark.drawn("gateways of a site", 1)
"""What several gateways do together, as processes: a dispatcher, moves, two releases."""

gateway_fault = pytest.mark.drawn("faults of a site of gateways", 1)
"""One of the faults that gateways which share their shards must survive."""


def generator(name: str) -> random.Random:
    """One for each name, whoever else draws."""
    return random.Random(f"{SEED} {name}")


def some(cases: Sequence[T], count: int, name: str) -> list[T]:
    """`count` of the cases, in their order; all of them with SOAK."""
    if SOAK or count >= len(cases):
        return list(cases)
    return [cases[at] for at in sorted(generator(name).sample(range(len(cases)), _fewer_if_quick(count)))]


def times(few: int, many: int) -> int:
    """How often something is repeated: `many` times with SOAK."""
    return many if SOAK else _fewer_if_quick(few)


def examples(count: int) -> int:
    """How many examples of a property are tried where `count` are usual."""
    return math.ceil(count * EXAMPLES_PART)


def named_by_hand(config: pytest.Config) -> bool:
    """Whether tests are named on the command line (`FILE::TEST`, `-k`)."""
    return bool(config.option.keyword) or any("::" in argument for argument in config.args)


def _fewer_if_quick(count: int) -> int:
    return -(-count // QUICK_PART) if QUICK else count


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Before Hypothesis' plugin, which gets the seed, unless it is given another one (`--hypothesis-seed`)."""
    config.addinivalue_line("markers", f"{MARKER}(group, count): a run takes `count` of the tests of a group")
    settings.register_profile("waystation", max_examples=examples(settings.default.max_examples), deadline=None)
    settings.load_profile("waystation")
    if config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = str(SEED)


def pytest_report_header() -> str:
    return f"seed: {SEED} (TEST_SEED={SEED} draws the same cases; {'all run: SOAK' if SOAK else 'SOAK=1 runs all'})"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if any(terminalreporter.stats.get(outcome) for outcome in ("failed", "error")):
        terminalreporter.write_line(f"to draw the same cases again: TEST_SEED={SEED}")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what is not drawn."""
    if SOAK or named_by_hand(config):
        return
    groups: dict[str, list[pytest.Item]] = defaultdict(list)
    counts: dict[str, int] = {}
    for item in items:
        marker = item.get_closest_marker(MARKER)
        if marker is not None:
            group, counts[marker.args[0]] = marker.args
            groups[group].append(item)
    left_out: list[pytest.Item] = []
    for group, members in groups.items():
        drawn = some(members, counts[group], group)
        left_out += [item for item in members if item not in drawn]
    if left_out:
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=left_out)
