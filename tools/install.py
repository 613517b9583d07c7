"""Install Waystation, and what it needs, into the environment of the interpreter that runs this. `make` calls it.

    .venv/bin/python tools/install.py --jars demo

Uses uv, in the version that constraints.txt pins; if uv cannot be had or fails, pip. uv does not read pip's
configuration: what pip is told about indexes and certificates is passed on, unless uv has a configuration of its own.
Needs nothing but the standard library.
"""

import argparse
import ast
import os
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from itertools import chain
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CONSTRAINTS = "constraints.txt"
EDGE = "./distributions/edge"
"""The distribution that devices install: Waystation's own depends on it."""

EXTRAS = {
    "demo": ("demo",),
    "all": ("demo", "quality", "report"),
    "dev": ("demo", "quality", "report", "dev"),
}
"""What can be asked for, and the optional dependencies in pyproject.toml that it takes; each has those before it."""

LARGEST = "pyspark"
LARGEST_MB = 450
UNCOMPRESSED = f"{LARGEST}:--build-option=--compression=stored"
"""Spark comes as a source archive. Its wheel is unpacked as soon as it is built, so compressing it would be 15 s of
processor time for nothing."""

UV_CONFIGURATION = ("~/.config/uv/uv.toml", "/etc/uv/uv.toml")
INDEXES = {"index-url": "UV_DEFAULT_INDEX", "extra-index-url": "UV_INDEX"}
"""Settings of pip, and the variables of uv that say the same."""

Run = Callable[[Sequence[str], Mapping[str, str]], int]
"""Runs a command in an environment; its exit status."""


def uv_environment(environ: Mapping[str, str], pip: Mapping[str, str], is_configured: bool) -> dict[str, str]:
    """The environment that makes uv install from where pip does. `pip`: pip's settings by name; `is_configured`: uv has
    a configuration file of its own, which then says what the indexes are."""
    passed: dict[str, str] = {}
    if not is_configured:
        passed |= {variable: pip[name] for name, variable in INDEXES.items() if name in pip}
        # uv refuses a directory that is not there, which pip passes over.
        links = [place for place in pip.get("find-links", "").split() if "://" in place or Path(place).is_dir()]
        passed |= {"UV_FIND_LINKS": ",".join(links)} if links else {}
        passed |= {"UV_NO_INDEX": "1"} if pip.get("no-index", "").lower() in ("1", "true", "yes", "on") else {}
    passed |= {"SSL_CERT_FILE": pip["cert"]} if "cert" in pip else {}
    passed |= {"UV_HTTP_TIMEOUT": pip["default-timeout"]} if "default-timeout" in pip else {}
    return {"UV_SYSTEM_CERTS": "1", **passed, **environ}


def pip_settings(listing: str) -> dict[str, str]:
    """Settings by name from what `pip config list` prints: `global.cert='…'`, `:env:.index-url='…'`. Those of the
    environment go over those of files, and what is for `install` over what is for all commands."""
    found: dict[str, tuple[int, str]] = {}
    ranks = {"global": 0, "install": 1, ":env:": 2}
    for line in listing.splitlines():
        key, _, value = line.partition("=")
        section, _, name = key.rpartition(".")
        if section in ranks and ranks[section] >= found.get(name, (0, ""))[0]:
            try:
                found[name] = ranks[section], str(ast.literal_eval(value))
            except (SyntaxError, ValueError):
                continue
    return {name: value for name, (_, value) in found.items()}


def pinned(name: str) -> str:
    """The requirement `name==version`, from either pyproject.toml or constraints.txt. Raises LookupError."""
    pins = (ROOT / CONSTRAINTS).read_text().splitlines()
    for directory in (ROOT, ROOT / EDGE):
        project = tomllib.loads((directory / "pyproject.toml").read_text())["project"]
        pins += [*project["dependencies"], *chain(*project.get("optional-dependencies", {}).values())]
    for pin in pins:
        if pin.startswith(f"{name}=="):
            return pin
    raise LookupError(f"{name} is not pinned in a pyproject.toml or {CONSTRAINTS}")


def install(
    extras: Sequence[str], with_jars: bool, environ: Mapping[str, str], run: Run, say: Callable[[str], None]
) -> int:
    """Install all; the exit status. The JVM libraries are resolved beside the packages, as soon as Spark, which brings
    what resolves them, is there."""
    project = ["-c", CONSTRAINTS, "-e", EDGE, "-e", f".[{','.join(extras)}]"]
    command, environment = installer(environ, run, say)
    while True:
        say(f"installing Spark ({LARGEST}; the first time {LARGEST_MB} MB to download)")
        status = run([*command, "-c", CONSTRAINTS, pinned(LARGEST)], environment)
        if not status:
            jars = _start_jars(environ, say) if with_jars else None
            say("installing the other packages")
            status = run([*command, *project], environment)
            if jars is not None and jars.wait():
                return 1
        if not status or command == pip():
            return status
        say("uv has failed: trying pip, which takes some minutes longer")
        command, environment = pip(), dict(environ)


def installer(environ: Mapping[str, str], run: Run, say: Callable[[str], None]) -> tuple[list[str], dict[str, str]]:
    """The command that installs, and its environment: uv's, or pip's if uv cannot be installed."""
    say(f"installing {pinned('uv')}, which installs the rest")
    if find_spec("pip") is None:  # an environment that uv has made, or the making of which was interrupted
        run([sys.executable, "-m", "ensurepip"], environ)
    if run([*pip(), pinned("uv")], environ):
        say("uv cannot be installed: using pip, which takes some minutes longer")
        return pip(), dict(environ)
    listing = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, env=environ
    )
    configured = "UV_CONFIG_FILE" in environ or any(Path(file).expanduser().exists() for file in UV_CONFIGURATION)
    quiet = [] if sys.stderr.isatty() else ["--quiet"]
    command = [str(Path(sys.executable).with_name("uv")), "pip", "install", *quiet, "--python", sys.executable]
    command += ["--config-settings-package", UNCOMPRESSED]
    return command, uv_environment(environ, pip_settings(listing.stdout), configured)


def pip() -> list[str]:
    """The command that installs with pip."""
    return [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]


def _start_jars(environ: Mapping[str, str], say: Callable[[str], None]) -> "subprocess.Popen[bytes]":
    say("downloading the JVM libraries at the same time")
    return subprocess.Popen([sys.executable, "-m", "tools.resolve_jars"], cwd=ROOT, env=environ)


def _run(command: Sequence[str], environ: Mapping[str, str]) -> int:
    return subprocess.run(command, cwd=ROOT, env=environ).returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=EXTRAS, help="the demo's packages; all that commands need; the developers' too")
    parser.add_argument("--jars", action="store_true", help="resolve the JVM libraries too")
    options = parser.parse_args()
    began = time.monotonic()

    def say(line: str) -> None:
        sys.stderr.write(f"{time.monotonic() - began:4.0f} s  {line}\n")
        sys.stderr.flush()

    status = install(EXTRAS[options.what], options.jars, os.environ, _run, say)
    say("installed" if not status else "not installed: see above")
    return status


if __name__ == "__main__":
    sys.exit(main())
