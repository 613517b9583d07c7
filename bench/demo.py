"""`make demo` as on a machine that has nothing of it yet: how long it takes, and what the clients see."""

import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.figures import Figures

ROOT = Path(__file__).resolve().parents[1]
LEFT_OUT = (".git", ".venv", ".waystation", "build", "dist", "*.egg-info", "__pycache__", ".*_cache", ".hypothesis")
SHOWN = 2000
"""Characters of what a demo that failed has printed last."""


class DemoBench:
    """One run of `make demo` in a copy of this checkout. Caches of packages, JVM libraries and classes are empty."""

    def __init__(self, figures: Figures) -> None:
        self._figures = figures

    def run(self) -> None:
        """Records `demo_total_s` (all of `make demo`), `demo_install_s` (until the demo itself begins), `demo_settle_s`
        (from the end of the day until the ledger has everything), and the clients' latencies.

        Raises RuntimeError if the demo fails.
        """
        with TemporaryDirectory(prefix="waystation-bench-demo-") as directory:
            shutil.copytree(ROOT, copy := Path(directory) / "waystation", ignore=shutil.ignore_patterns(*LEFT_OUT))
            began = time.monotonic()
            done = subprocess.run(
                ["make", "demo", "ARGS=--json build/demo.json"],
                cwd=copy,
                env=_with_empty_caches(Path(directory)),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            total_s = time.monotonic() - began
            if done.returncode:
                raise RuntimeError(f"make demo ended with status {done.returncode}: {done.stdout[-SHOWN:]}")
            shown = json.loads((copy / "build" / "demo.json").read_text())
        self._figures.add("demo_total_s", round(total_s, 1))
        self._figures.add("demo_install_s", round(total_s - shown["seconds"], 1))
        for key in ("settle_s", "p50_ms", "p99_ms"):
            self._figures.add(f"demo_{key}", shown[key])


def _with_empty_caches(directory: Path) -> dict[str, str]:
    """The environment of a user who has installed nothing yet. Ivy's cache is in the home directory that Java knows."""
    caches = {"UV_CACHE_DIR": "uv", "PIP_CACHE_DIR": "pip", "WAYSTATION_CACHE": "waystation"}
    java = f"{os.environ.get('JAVA_TOOL_OPTIONS', '')} -Duser.home={directory}".strip()
    return os.environ | {name: str(directory / place) for name, place in caches.items()} | {"JAVA_TOOL_OPTIONS": java}
