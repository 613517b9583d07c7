"""The distribution for devices, `waystation-edge`: alone in an empty environment, beside `waystation`, and after either
is removed."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests import draw
from tools import install

MOST_BYTES = 60_000_000
"""What a device needs, without compiled bytecode."""

PLATFORM = {"pipelines", "gateway", "jobs", "conf"}
DEVICE = {"schemas", "mqtt", "edge", "waystation"}

LOADED = """
import json, sys
import edge.websocket_link, schemas.events, schemas.session_log, waystation
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""


IMPORTS_ALL = """
import importlib, json, pkgutil
import bundles, edge, feeds, mqtt, schemas, waystation
from edge.client.errors import MissingPackage
lacking = set()
for package in (bundles, edge, feeds, mqtt, schemas, waystation):
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if module.name.endswith("__main__"):
            continue
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:
            lacking.add(error.name.partition(".")[0])
        except MissingPackage as error:
            lacking.add(error.__cause__.name)
print(json.dumps(sorted(lacking)))
"""

AGENT = """
client_id = "van-7"
[platform]
connect_points = ["mqtt://127.0.0.1:1"]
[smtp.routes]
"b.example" = "far"
[smtp.submission]
enabled = true
port = 0
[smtp.relay]
enabled = true
domains = ["a.example"]
[folders]
enabled = true
inbox = "in"
[mqtt.routes]
"#" = "platform"
[mqtt.listener]
enabled = true
port = 0
[mqtt.broker]
enabled = true
connect_point = "mqtt://127.0.0.1:1"
[mesh]
enabled = true
port = 0
discovery = true
[uplink]
enabled = true
bearers = [{ name = "lan", url = "http://127.0.0.1:1" }]
[metrics]
enabled = true
port = 0
"""


class Device:
    """An empty environment, and the sources that are installed into it."""

    def __init__(self, directory: Path) -> None:
        self._source = directory / "source"
        shutil.copytree(
            install.ROOT,
            self._source,
            ignore=shutil.ignore_patterns(".*", "build", "dist", "tests", "bench", "docs", "*.egg-info", "__pycache__"),
        )
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(directory / "environment")], check=True)
        self._python = directory / "environment" / "bin" / "python"
        self.packages = next((directory / "environment").glob("lib/python*/site-packages"))

    def install(self, *what: str) -> None:
        """Installs requirements or directories of the source, as `make` would."""
        self._uv("install", "-c", str(install.ROOT / install.CONSTRAINTS), *what)

    def remove(self, name: str) -> None:
        self._uv("uninstall", name)

    def run(self, program: str) -> "subprocess.CompletedProcess[str]":
        environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        command = [str(self._python), "-B", "-c", program]
        return subprocess.run(command, capture_output=True, text=True, cwd=self.packages, env=environ)

    def command(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """Runs the command `waystation`."""
        environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        command = [str(self._python.with_name("waystation")), *words]
        return subprocess.run(command, capture_output=True, text=True, cwd=self.packages, env=environ)

    def started(self, *words: str) -> "subprocess.Popen[str]":
        """Starts the command `waystation`, whose output is read from its `stdout`."""
        environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        command = [str(self._python.with_name("waystation")), *words]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=self.packages, env=environ)

    def files_of(self, name: str) -> set[str]:
        """The files that a distribution has, by its record."""
        [record] = self.packages.glob(f"{name}-*.dist-info/RECORD")
        return {line.split(",")[0] for line in record.read_text().splitlines()}

    def _uv(self, *words: str) -> None:
        def run(command: Sequence[str], environ: Mapping[str, str]) -> int:
            return subprocess.run(command, env=environ).returncode

        (uv, pip, _, *options), environ = install.installer(os.environ, run, lambda _line: None)
        options[options.index("--python") + 1] = str(self._python)
        if words[0] == "uninstall":
            options = ["--python", str(self._python)]
        subprocess.run([uv, pip, words[0], *options, *words[1:]], check=True, cwd=self._source, env=environ)


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> Device:
    device = Device(tmp_path_factory.mktemp("device"))
    device.install(install.EDGE)
    return device


def test_a_device_needs_no_spark_and_little_space(device: Device) -> None:
    loaded = set(json.loads(device.run(LOADED).stdout))
    assert loaded >= DEVICE
    assert not loaded & {"pyspark", "pyarrow", "confluent_kafka", "aiohttp", *PLATFORM}
    assert not [name for name in ("pyspark", "pyarrow", *PLATFORM) if (device.packages / name).exists()]
    sizes = {path: path.stat().st_size for path in device.packages.rglob("*") if path.is_file()}
    assert sum(size for path, size in sizes.items() if path.suffix != ".pyc") < MOST_BYTES


def test_a_device_has_the_agent(device: Device, tmp_path: Path) -> None:
    conf = str(tmp_path / "agent.toml")
    assert device.command("--version").stdout.startswith("waystation ")
    assert device.command("agent", "init", "van-7", "--conf", conf).returncode == 0
    ended = device.command("agent", "status", "--conf", conf)
    assert ended.returncode == 1
    assert ended.stderr.startswith("no agent runs in")


def test_every_module_can_be_imported_without_the_platform(device: Device) -> None:
    """But for those of the bearer kafka, which is an extra."""
    ended = device.run(IMPORTS_ALL)
    assert (json.loads(ended.stdout), ended.stderr) == (["kafka"], "")


def test_an_agent_runs_with_every_part_turned_on(device: Device, tmp_path: Path) -> None:
    """M16, M19: what the parts import is installed."""
    conf = tmp_path / "agent.toml"
    conf.write_text(AGENT)
    authority, identity = str(tmp_path / "authority"), str(tmp_path / "agent" / "identity")
    assert device.command("ca", "init", authority).returncode == 0
    assert device.command("ca", "issue", authority, "van-7", identity).returncode == 0
    with device.started("agent", "up", "--conf", str(conf)) as process:
        assert process.stdout is not None
        try:
            ready = next(line for line in process.stdout if line.startswith("ready: agent van-7"))
            assert all(part in ready for part in ("SMTP on", "MQTT on", "peers on", "metrics on"))
            ended = device.command("agent", "send", "@far", "hello", "--conf", str(conf))
            assert (ended.returncode, ended.stderr) == (0, "")
            found = json.loads(device.command("agent", "status", "--json", "--conf", str(conf)).stdout)
            assert found["mesh"]["waiting_for_keys"] == 1
        finally:
            process.terminate()
        assert process.wait(60) == 0


def test_both_have_the_commands_of_both(device: Device) -> None:
    """What the platform depends on is taken from where this test runs."""
    device.install("--no-deps", ".")
    others = device.packages / "zz-what-the-platform-needs.pth"
    others.write_text(f"{sysconfig.get_path('purelib')}\n")
    try:
        ended = device.command("up", "--help")
        assert (ended.returncode, "Start the local stack" in ended.stdout) == (0, True), ended.stderr
        ended = device.command("agent", "--help")
        assert (ended.returncode, "enrol" in ended.stdout) == (0, True), ended.stderr
        origin = device.run("import jobs.cli.main, edge; print(jobs.__file__, edge.__file__)").stdout.split()
        assert all(Path(file).is_relative_to(device.packages) for file in origin)
    finally:
        others.unlink()


@draw.long_test
def test_both_share_no_file_and_either_can_be_removed(device: Device) -> None:
    device.install("--no-deps", ".")
    ours, edge = device.files_of("waystation"), device.files_of("waystation_edge")
    assert not ours & edge
    assert {file.partition("/")[0] for file in ours} >= PLATFORM
    assert {file.partition("/")[0] for file in edge} >= DEVICE
    device.remove("waystation")
    ended = device.command("up")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith("`waystation up` is a command of the platform")
    assert not [name for name in PLATFORM if (device.packages / name).exists()]
    assert device.run(LOADED).returncode == 0
    device.install("--no-deps", ".")
    device.remove("waystation-edge")
    assert not [name for name in DEVICE if (device.packages / name).exists()]
    assert all((device.packages / name).is_dir() for name in PLATFORM)
    ended = device.run("import jobs.cli.main")
    assert ended.returncode == 1
    assert ended.stderr.startswith("waystation needs the distribution waystation-edge")
    device.install(install.EDGE)
    assert device.run(LOADED).returncode == 0


def test_one_version_pinned_once() -> None:
    ours, edge = (
        tomllib.loads((install.ROOT / place / "pyproject.toml").read_text())["project"] for place in (".", install.EDGE)
    )
    assert f"waystation-edge=={ours['version']}" in ours["dependencies"]
    assert edge["version"] == ours["version"]
    pinned = [pin.partition("==")[0] for pin in (*ours["dependencies"], *edge["dependencies"])]
    assert len(pinned) == len(set(pinned))
