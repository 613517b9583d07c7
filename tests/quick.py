"""Which tests `make check` (QUICK=1) runs in its minute: all that concern what was changed since the last commit, and
of each other file some that it draws by its seed. `make test` runs them all.

A test file concerns a change if the file itself was changed, or a module of which it uses a class or a function. Tests
that are named on the command line are never left out.
"""

import math
import subprocess
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from types import ModuleType

import pytest

from tests.draw import QUICK, generator, named_by_hand

PART = 10
"""Of each file that concerns no change, a test in so many is run, and one at least."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what is not drawn."""
    if not QUICK or named_by_hand(config):
        return
    files: dict[Path, list[pytest.Item]] = defaultdict(list)
    for item in items:
        files[item.path].append(item)
    changed = changed_modules(config.rootpath)
    kept = {item for tests in files.values() for item in (tests if concerns(tests[0], changed) else drawn(tests))}
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]


def drawn(tests: list[pytest.Item]) -> list[pytest.Item]:
    """Some tests of one file."""
    return generator(tests[0].path.name).sample(tests, math.ceil(len(tests) / PART))


def concerns(test: pytest.Item, changed: frozenset[str]) -> bool:
    """Whether the file of this test was changed, or what it uses. `changed`: names of modules."""
    module = getattr(test, "module", None)
    return isinstance(module, ModuleType) and not changed.isdisjoint(used_by(module))


def used_by(module: ModuleType) -> set[str]:
    """The names of this module and of those that its classes, functions and modules come from."""
    values = vars(module).values()
    of_values = (v.__name__ if isinstance(v, ModuleType) else getattr(v, "__module__", None) for v in values)
    return {module.__name__, *(name for name in of_values if isinstance(name, str))}


def changed_modules(root: Path) -> frozenset[str]:
    """Modules that differ from the last commit, or that it does not have; none where git does not know."""
    command = ["git", "status", "--porcelain", "--no-renames", "--untracked-files=all", "-z"]
    try:
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return frozenset()
    return modules(entry[3:] for entry in done.stdout.split("\0") if entry)


def modules(paths: Iterable[str]) -> frozenset[str]:
    """The names of these files' modules; others have none."""
    sources = (PurePosixPath(path) for path in paths if path.endswith(".py"))
    return frozenset(".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in sources)
