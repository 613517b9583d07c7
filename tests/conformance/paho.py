"""Runs the interoperability suite of the Eclipse Paho project against a server, each test in a process of its own.

    python -m tests.conformance.paho CHECKOUT --host 127.0.0.1 --port 1883

CHECKOUT is a copy of the repository paho.mqtt.testing of the organisation eclipse-paho; nothing of it is part of this
project. The table that comes out is the one in docs/conformance.md; the exit status is 1 if any test failed.
"""

import argparse
import ast
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

SUITES = {"5.0": "client_test5", "3.1.1": "client_test"}
TIMEOUT_S = 120

# What the suites' own main programs set, and unittest's for one test.
_LAUNCHER = """
import sys, unittest
sys.path.insert(0, ".")
name, test, host, port = sys.argv[1:5]
suite = __import__(name)
suite.host, suite.port = host, int(port)
suite.topics = ("TopicA", "TopicA/B", "Topic/C", "TopicA/C", "/TopicA")
suite.wildtopics = ("TopicA/+", "+/C", "#", "/#", "/+", "+/+", "TopicA/#")
suite.nosubscribe_topics = ("test/nosubscribe",)
suite.topic_prefix = "client_test5/"
unittest.main(module=suite, argv=["suite", "Test." + test])
"""


class Result(NamedTuple):
    version: str
    test: str
    verdict: str
    """`passed`, or why not: the last line that the test said."""
    seconds: float
    output: str


def tests_of(directory: Path, suite: str) -> list[str]:
    """Names of the suite's tests, in their order."""
    tree = ast.parse((directory / f"{suite}.py").read_text())
    bodies = [node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Test"]
    return [f.name for body in bodies for f in body if isinstance(f, ast.FunctionDef) and f.name.startswith("test")]


def run_one(directory: Path, version: str, test: str, host: str, port: int) -> Result:
    argv = [sys.executable, "-c", _LAUNCHER, SUITES[version], test, host, str(port)]
    began = time.monotonic()
    try:
        done = subprocess.run(
            argv, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        output = (error.stdout or b"").decode(errors="replace")
        return Result(version, test, f"not over after {TIMEOUT_S} s", TIMEOUT_S, output)
    output = done.stdout.decode(errors="replace")
    verdict = "passed" if done.returncode == 0 else _cause(output)
    return Result(version, test, verdict, time.monotonic() - began, output)


def run_all(directory: Path, versions: list[str], only: re.Pattern[str], host: str, port: int) -> Iterator[Result]:
    """One result after the other."""
    for version in versions:
        for test in tests_of(directory, SUITES[version]):
            if only.search(test):
                yield run_one(directory, version, test, host, port)


def _cause(output: str) -> str:
    """The first error that names itself; the suite's later ones only follow from it."""
    errors = re.findall(r"^(?:\w+\.)*\w*(?:Error|Exception)\b.*$", output, re.MULTILINE)
    return str(errors[0]) if errors else "failed"


def main() -> int:
    parser = argparse.ArgumentParser(description="Runs the interoperability suite of Eclipse Paho.")
    parser.add_argument("checkout", type=Path, help="a copy of the repository paho.mqtt.testing")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=1883)
    parser.add_argument("--version", choices=SUITES, action="append", help="of MQTT; both unless named")
    parser.add_argument("--only", default="", help="a regular expression that names of tests shall match")
    parser.add_argument("--verbose", action="store_true", help="what failed tests said")
    asked = parser.parse_args()
    directory = asked.checkout / "interoperability"
    if not (directory / "client_test5.py").is_file():
        parser.error(f"{directory} has no client_test5.py: name a copy of the repository paho.mqtt.testing")
    results = []
    sys.stdout.write("| MQTT | test | result | s |\n|---|---|---|---|\n")
    for result in run_all(directory, asked.version or list(SUITES), re.compile(asked.only), asked.host, asked.port):
        results.append(result)
        sys.stdout.write(f"| {result.version} | `{result.test}` | {result.verdict} | {result.seconds:.0f} |\n")
        if asked.verbose and result.verdict != "passed":
            sys.stdout.write(result.output + "\n")
        sys.stdout.flush()
    failed = sum(result.verdict != "passed" for result in results)
    sys.stdout.write(f"\n{len(results) - failed} of {len(results)} passed\n")
    return 1 if failed or not results else 0


if __name__ == "__main__":
    sys.exit(main())
