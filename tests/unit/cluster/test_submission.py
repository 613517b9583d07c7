"""What `waystation submit` calls, and what goes with it."""

import os
import shutil
import sys
import time
from importlib import metadata, resources
from pathlib import Path
from subprocess import run
from threading import Event

import pytest
from wheel.wheelfile import WheelFile

from jobs.cluster import drivers
from jobs.cluster.applications import applications
from jobs.cluster.bundle import PACKAGES, Bundle, make_bundle
from jobs.cluster.submission import IN_IMAGE, Submission, Tools, submission
from jobs.errors import SubmissionError
from schemas.settings import Settings, load_settings
from tests.waiting import wait_for

ROOT = Path(__file__).parents[3]
BASE = ROOT / "conf" / "base.toml"
TOOLS = Tools(Path("/spark"), Path("/java"), "/venv/bin/python", [Path("/jars/a.jar"), Path("/jars/b.jar")])
BUNDLE = Bundle(Path("/b/waystation.zip"), Path("/b/launch.py"), (Path("/b/0-base.toml"), Path("/b/1-mine.toml")))
COMMON = 'kafka.bootstrap = "broker:9092"\nstorage.tables = "s3a://bucket/tables"\n'
STANDALONE = COMMON + 'cluster.master = "spark://m:7077"\n'
YARN = COMMON + 'cluster.master = "yarn"\ncluster.archive = "hdfs:///env.tar.gz"\ncluster.queue = "streams"\n'
KUBERNETES = (
    COMMON + 'cluster.master = "k8s://https://h:6443"\ncluster.image = "image:1"\ncluster.upload = "s3a://b/u"\n'
)


def settings(directory: Path, overlay: str) -> Settings:
    file = directory / "overlay.toml"
    file.write_text(overlay)
    return load_settings([BASE, file], {})


def submitted(directory: Path, overlay: str, name: str = "ledger", environ: dict[str, str] | None = None) -> Submission:
    [application] = applications(name, "active" if name == "router" else None)
    return submission(application, settings(directory, overlay), BUNDLE, TOOLS, environ or {})


def option(of: Submission, name: str) -> str:
    return of.argv[of.argv.index(name) + 1]


def confs(of: Submission) -> dict[str, str]:
    pairs = [value for name, value in zip(of.argv, of.argv[1:], strict=False) if name == "--conf"]
    return {name: value for name, _, value in (pair.partition("=") for pair in pairs)}


def test_standalone(tmp_path: Path) -> None:
    """The driver runs here, with our interpreter; jars, packages and settings go with it."""
    found = submitted(tmp_path, STANDALONE + "cluster.router.executors = 2", "router")
    assert found.argv[0] == "/spark/bin/spark-submit"
    assert (option(found, "--master"), option(found, "--deploy-mode")) == ("spark://m:7077", "client")
    assert option(found, "--jars") == "/jars/a.jar,/jars/b.jar"
    assert option(found, "--py-files") == "/b/waystation.zip"
    assert found.argv[-4:] == ("/b/launch.py", "jobs.router", "--role", "active")
    spark = confs(found)
    assert (spark["spark.cores.max"], spark["spark.executor.cores"]) == ("8", "4")
    assert spark["spark.locality.wait"] == "0s"
    assert "-XX:-DontCompileHugeMethods" in spark["spark.executor.extraJavaOptions"]
    assert found.environment["WAYSTATION_CONF"] == "/b/0-base.toml:/b/1-mine.toml"
    assert found.environment["PYSPARK_DRIVER_PYTHON"] == "/venv/bin/python"


def test_yarn_with_the_driver_in_the_cluster(tmp_path: Path) -> None:
    """The packed environment is Python there, for driver and executors; configuration travels as files."""
    environ = {"WAYSTATION_LEDGER__TRIGGER_S": "5.0", "WAYSTATION_CACHE": "/c", "HOME": "/h"}
    found = submitted(tmp_path, YARN + 'cluster.deploy_mode = "cluster"', environ=environ)
    assert option(found, "--archives") == "hdfs:///env.tar.gz#environment"
    assert option(found, "--files") == "/b/0-base.toml,/b/1-mine.toml"
    assert option(found, "--queue") == "streams"
    spark = confs(found)
    assert spark["spark.pyspark.python"] == "./environment/bin/python"
    assert spark["spark.executor.instances"] == "2"
    assert spark["spark.yarn.appMasterEnv.WAYSTATION_CONF"] == "0-base.toml:1-mine.toml"
    assert spark["spark.yarn.appMasterEnv.WAYSTATION_LEDGER__TRIGGER_S"] == "5.0"
    assert not any("CACHE" in name or "HOME" in name for name in spark)


def test_kubernetes(tmp_path: Path) -> None:
    """The image has packages and jars: none are sent."""
    found = submitted(tmp_path, KUBERNETES + 'cluster.deploy_mode = "cluster"\ncluster.service_account = "sa"')
    assert "--jars" not in found.argv
    assert "--py-files" not in found.argv
    assert found.argv[-2:] == (IN_IMAGE, "jobs.ledger")
    spark = confs(found)
    assert spark["spark.kubernetes.container.image"] == "image:1"
    assert spark["spark.kubernetes.authenticate.driver.serviceAccountName"] == "sa"
    assert spark["spark.kubernetes.driverEnv.WAYSTATION_CONF"] == "0-base.toml:1-mine.toml"


def test_further_settings_go_over_ours(tmp_path: Path) -> None:
    assert (
        confs(submitted(tmp_path, STANDALONE + 'cluster.spark = { "spark.cores.max" = "1" }'))["spark.cores.max"] == "1"
    )


def test_what_is_shown_has_no_secrets(tmp_path: Path) -> None:
    """One argument a line, options with their values; a file at a time."""
    environ = {"WAYSTATION_KAFKA__PASSWORD": "hidden1", "WAYSTATION_KAFKA__PREFIX": "shown."}
    overlay = 'cluster.deploy_mode = "cluster"\ncluster.spark = { "spark.hadoop.fs.s3a.secret.key" = "hidden2" }'
    lines = list(submitted(tmp_path, YARN + overlay, environ=environ).shown())
    text = "\n".join(lines)
    assert "hidden" not in text
    assert "--conf spark.hadoop.fs.s3a.secret.key=********" in lines
    assert "--conf spark.yarn.appMasterEnv.WAYSTATION_KAFKA__PREFIX=shown." in lines
    assert "--jars" in lines
    assert "  /jars/a.jar" in lines
    assert lines[-2:] == ["/b/launch.py", "jobs.ledger"]
    [router] = applications("router", "active", ("--first", "--second"))
    of_router = submission(router, settings(tmp_path, YARN), BUNDLE, TOOLS, {})
    assert list(of_router.shown())[-5:] == ["jobs.router", "--role", "active", "--first", "--second"]


def test_a_router_is_a_pair_of_applications() -> None:
    assert [each.name for each in applications("router", None)] == ["router-active", "router-backup"]
    assert [each.arguments for each in applications("router", "backup", ("-x",))] == [("--role", "backup", "-x")]


@pytest.mark.parametrize(
    ("name", "role", "said"),
    [
        ("gateway", None, "no application 'gateway' to submit; there are: router, ledger"),
        ("spark", None, "no application 'spark'"),
        ("ledger", "active", "--role is for routers"),
        ("router", "both", "--role both is not one of: active, backup"),
    ],
)
def test_an_application_that_there_is_not(name: str, role: str | None, said: str) -> None:
    with pytest.raises(SubmissionError, match=said):
        applications(name, role)


def test_a_bundle_runs_from_itself(tmp_path: Path) -> None:
    """The packages import from the wheel, with no other Waystation on the path; the launcher runs a module of it."""
    bundle = make_bundle([BASE], tmp_path)
    with WheelFile(shutil.copy(bundle.packages, tmp_path / f"{bundle.packages.stem}.whl")) as wheel:
        names = wheel.namelist()
        for name in names:
            wheel.read(name)  # raises if it is not as RECORD has it
    assert {name.split("/")[0] for name in names} == {
        *PACKAGES,
        f"waystation-{metadata.version('waystation')}.dist-info",
    }
    assert {"jobs/router.py", "jobs/sql/views.sql", "conf/fairscheduler.xml"} <= set(names)
    assert not any("__pycache__" in name or name.startswith("gateway") for name in names)
    [described] = metadata.distributions(name="waystation", path=[str(bundle.packages)])
    assert described.version == metadata.version("waystation")
    environ = os.environ | {"PYTHONPATH": str(bundle.packages)}
    command = [sys.executable, str(bundle.launcher), "schemas.settings"]
    assert run(command, env=environ, cwd=tmp_path, check=True, timeout=60).returncode == 0
    where = "import jobs.cluster, sys; sys.exit(not jobs.cluster.__file__.startswith(sys.argv[1]))"
    assert (
        run([sys.executable, "-c", where, str(bundle.packages)], env=environ, cwd=tmp_path, timeout=60).returncode == 0
    )


def test_a_bundle_never_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same content is the same directory, whenever it is made; another configuration is another, and the first
    stays. Nobody else reads the configuration."""
    first = make_bundle([BASE], tmp_path / "cache")
    later = time.time() + 3600
    monkeypatch.setattr(time, "time", lambda: later)
    assert make_bundle([BASE], tmp_path / "cache") == first
    mine = tmp_path / "mine.toml"
    mine.write_text('[kafka]\nprefix = "other."\n')
    second = make_bundle([BASE, mine], tmp_path / "cache")
    assert second.packages != first.packages
    assert first.packages.read_bytes() == second.packages.read_bytes()
    assert second.configuration[1].read_text() == mine.read_text()
    assert second.configuration[1].stat().st_mode & 0o077 == 0
    assert second.packages.parent.stat().st_mode & 0o077 == 0
    assert len(list((tmp_path / "cache" / "submissions").iterdir())) == 2


def test_the_launcher_is_the_one_installed(tmp_path: Path) -> None:
    launcher = resources.files("jobs").joinpath("cluster", "launch.py").read_bytes()
    assert make_bundle([BASE], tmp_path).launcher.read_bytes() == launcher


def shell(name: str, script: str) -> Submission:
    return Submission(name, ("/bin/sh", "-c", script), {})


def test_drivers_here_are_kept_until_all_have_ended() -> None:
    """One that fails ends no other; its status is told at the end."""
    said: list[str] = []
    with pytest.raises(SubmissionError, match="router-active with status 3"):
        drivers.run([shell("router-active", "exit 3"), shell("router-backup", "sleep 0.5")], Event(), 5, said.append)
    assert "router-backup: ended with status 0" in said


def test_drivers_here_end_when_asked_to(tmp_path: Path) -> None:
    """The application gets SIGTERM and its time; spark-submit, its parent, does not."""
    launch = tmp_path / "launch.py"
    launch.write_text(
        "import signal, sys, time\nsignal.signal(15, lambda *_: sys.exit(0))\nprint(1, flush=True)\ntime.sleep(60)\n"
    )
    ready = tmp_path / "ready"
    script = f"trap 'exit 9' TERM; {sys.executable} {launch} > {ready}; exit $?"
    stopped = Event()

    def report(line: str) -> None:
        wait_for(lambda: ready.exists() and bool(ready.read_text()), "the application runs")
        stopped.set()

    drivers.run([shell("ledger", script)], stopped, 30, report)
