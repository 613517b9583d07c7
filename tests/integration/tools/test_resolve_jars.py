"""Resolving the JVM libraries begins while packages are being installed: only pyspark is there yet."""

import subprocess
import sys

from tests.documents import ROOT

PROGRAM = """
import sys

class Absent:
    there = {*sys.stdlib_module_names, "pyspark", "jobs", "schemas", "tools", "conf"}

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in self.there:
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Absent())
import tools.resolve_jars
"""


def test_it_needs_nothing_but_pyspark() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
