"""What `waystation submit` calls, and what goes with it."""

import shutil
import sys
import time
from collections.abc import Callable
from importlib import metadata, resources
from pathlib import Path

import msgspec
import pytest
from wheel.wheelfile import WheelFile

from jobs.cli.main import main
from jobs.cluster.applications import applications
from jobs.cluster.bundle import PACKAGES, Bundle, make_bundle
from jobs.cluster.masking import MASKED, masked
from jobs.cluster.submission import IN_IMAGE, Submission, Tools, submission
from jobs.errors import SubmissionError
from schemas.settings import Settings, load_settings

ROOT = Path(__file__).parents[4]
BASE = ROOT / "conf" / "base.toml"
TOOLS = Tools(Path("/spark"), Path("/java"), "/venv/bin/python", [Path("/jars/a.jar"), Path("/jars/b.jar")])
BUNDLE = Bundle(Path("/b/waystation.zip"), Path("/b/launch.py"), (Path("/b/0-base.toml"), Path("/b/1-mine.toml")))
COMMON = 'kafka.bootstrap = "broker:9092"\nstorage.tables = "s3a://bucket/tables"\n'
STANDALONE = COMMON + 'cluster.master = "spark://m:7077"\n'
YARN = COMMON + 'cluster.master = "yarn"\ncluster.archive = "hdfs:///env.tar.gz"\ncluster.queue = "streams"\n'
KUBERNETES = COMMON + 'cluster.master = "k8s://https://h:6443"\ncluster.image = "image:1"\n'
IN_PODS = KUBERNETES + 'cluster.deploy_mode = "cluster"\n'


def settings(directory: Path, overlay: str) -> Settings:
    file = directory / "overlay.toml"
    file.write_text(overlay)
    return load_settings([BASE, file], {})


def submitted(directory: Path, overlay: str, name: str = "ledger", environ: dict[str, str] | None = None) -> Submission:
    [application] = applications(name, "active" if name == "router" else None)
    loaded = settings(directory, overlay)
    bundle = BUNDLE
    if loaded.cluster.in_pods:  # what the overlay says goes into the command
        bundle = BUNDLE._replace(configuration=(BASE, directory / "overlay.toml"))
    return submission(application, loaded, bundle, TOOLS, environ or {})


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
    assert spark["spark.pyspark.driver.python"] == "/venv/bin/python"
    assert spark["spark.pyspark.python"] == "python3", "that of the machines of the cluster"


@pytest.mark.parametrize("overlay", [YARN, STANDALONE, KUBERNETES], ids=["yarn", "standalone", "kubernetes"])
def test_a_driver_here_has_our_interpreter(tmp_path: Path, overlay: str) -> None:
    """What the cluster has, be it a packed environment that is unpacked there alone, is for executors."""
    found = submitted(tmp_path, overlay)
    assert confs(found)["spark.pyspark.driver.python"] == "/venv/bin/python"
    assert "spark.pyspark.driver.python" not in confs(submitted(tmp_path, YARN + 'cluster.deploy_mode = "cluster"'))


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


def test_kubernetes_with_the_driver_in_a_pod(tmp_path: Path) -> None:
    """The image has packages and jars, and the environment the configuration: nothing of this machine is sent."""
    found = submitted(tmp_path, IN_PODS + 'cluster.service_account = "sa"')
    assert not {"--jars", "--py-files", "--files"} & set(found.argv)
    assert found.argv[-2:] == (IN_IMAGE, "jobs.ledger")
    spark = confs(found)
    assert spark["spark.kubernetes.container.image"] == "image:1"
    assert spark["spark.kubernetes.authenticate.driver.serviceAccountName"] == "sa"
    assert spark["spark.kubernetes.driverEnv.WAYSTATION_CONF"] == "/opt/waystation/base.toml"
    volume = spark["spark.kubernetes.driver.volumes.emptyDir.data.mount.path"]
    assert spark["spark.kubernetes.driverEnv.WAYSTATION_DATA"] == volume
    assert not any("upload" in name for name in spark)


def test_kubernetes_with_the_driver_here(tmp_path: Path) -> None:
    """It is started from what is on this machine, as with other clusters: the image is the executors'."""
    found = submitted(tmp_path, KUBERNETES)
    assert found.argv[-2:] == ("/b/launch.py", "jobs.ledger")
    assert (option(found, "--jars"), option(found, "--py-files")) == ("/jars/a.jar,/jars/b.jar", "/b/waystation.zip")
    assert confs(found)["spark.kubernetes.container.image"] == "image:1"


MUCH = """
ledger = { trigger_s = 30.0, batches_at_once = 3 }
router.standby_query = false
gateway.tls.mqtts_port = "off"
gateway.policy = { blocked_publish = ["a/#", 'b "c"'], topic_bytes = [{ filter = "x/+", bytes = 5 }] }
kafka.password_file = "/etc/waystation/kafka-user/password"
kafka.client = { "security.protocol" = "SASL_SSL", "sasl.username" = 'an "odd" name', "ssl.key.location" = "/etc/k" }
storage.access_key = "id"
storage.secret_file = "/etc/waystation/s3/secret"
cluster.lease_s = 20.0
cluster.spark = { "spark.hadoop.fs.s3a.secret.key" = "hidden" }
"""


def test_a_pod_learns_all_that_the_overlays_say(tmp_path: Path) -> None:
    """Over the image's own base: what its driver reads is what is read here, but for `[cluster]`, which is done with;
    and a variable goes over a file."""
    text = IN_PODS + MUCH
    environ = {"WAYSTATION_LEDGER__TRIGGER_S": "40.0"}
    prefix = "spark.kubernetes.driverEnv."
    spark = confs(submitted(tmp_path, text, environ=environ))
    told = {name.removeprefix(prefix): value for name, value in spark.items() if name.startswith(prefix)}
    assert not any("hidden" in value for value in told.values())
    there, here = load_settings([BASE], told), load_settings([BASE, tmp_path / "overlay.toml"], environ)
    assert there.cluster.lease_s == 20.0
    assert there.kafka.client["sasl.username"] == 'an "odd" name'
    assert msgspec.structs.replace(there, cluster=here.cluster) == here


@pytest.mark.parametrize(
    ("said", "named"),
    [
        ('kafka.client = { "sasl.password" = "hidden" }', "kafka.client has the secret sasl.password"),
        (
            'storage.deltalake = { AWS_SECRET_ACCESS_KEY = "hidden" }',
            "storage.deltalake has the secret AWS_SECRET_ACCESS_KEY",
        ),
        ('storage.hadoop = { "fs.s3a.secret.key" = "hidden" }', r"storage.hadoop has the secret fs\.s3a\.secret\.key"),
    ],
)
def test_secrets_do_not_go_where_others_see_them(tmp_path: Path, said: str, named: str) -> None:
    """A pod's environment is seen by all who may look at the pod. Names of keys are no secrets."""
    with pytest.raises(SubmissionError, match=f"{named}, which everyone .* kafka.password_file"):
        submitted(tmp_path, IN_PODS + said)
    submitted(tmp_path, IN_PODS + 'storage.deltalake = { AWS_ACCESS_KEY_ID = "id" }')
    submitted(tmp_path, IN_PODS + 'kafka.client = { "sasl.kerberos.keytab" = "/etc/k", "ssl.key.location" = "/etc/l" }')
    submitted(tmp_path, YARN + 'cluster.deploy_mode = "cluster"\n' + said)  # in a file, which YARN keeps for the user


def test_a_variable_with_a_secret_is_refused_where_others_see_it(tmp_path: Path) -> None:
    said = """{ "sasl.password" = "hidden" }"""
    with pytest.raises(SubmissionError, match=r"kafka.client has the secret sasl\.password"):
        submitted(
            tmp_path,
            YARN + f'cluster.deploy_mode = "cluster"\nkafka.client = {said}',
            environ={"WAYSTATION_KAFKA__CLIENT": said},
        )


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


@pytest.mark.parametrize(
    "line",
    [
        'WAYSTATION_KAFKA__CLIENT={ "sasl.username" = "shown", "sasl.password" = "hidden" }',
        "WAYSTATION_KAFKA__CLIENT={ sasl.password = '''hidden''', sasl.username = 'shown' }",
        'WAYSTATION_KAFKA__CLIENT={ "ssl.key.location" = "shown", "ssl.key.password" = "hid\\"den", "x" = "hi" }',
        'WAYSTATION_STORAGE__DELTALAKE={ AWS_SECRET_ACCESS_KEY = "hidden", AWS_REGION = "shown" }',
        'WAYSTATION_CLUSTER__SPARK={ "spark.driver.extraJavaOptions" = "-DkeyStorePassword=hidden -Dx=shown" }',
        "--conf spark.driver.extraJavaOptions=-Dx=shown -Djavax.net.ssl.trustStorePassword=hidden -Xss16m",
        '--conf spark.x=ScramLoginModule required username="shown" password="hidden";',
        '--conf spark.x={"user": "shown", "password": "hidden"}',
        "--conf spark.hadoop.fs.s3a.endpoint=https://shown:hidden@host",
        "WAYSTATION_KAFKA__PASSWORD_FILE=/shown",
        "--conf spark.kubernetes.driver.secrets.kafka-password=/shown",
        "--conf spark.hadoop.fs.azure.account.key.shownfiles.dfs.core.windows.net=hidden",
        "--since=shown",
    ],
)
def test_secrets_within_values_are_masked_too(line: str) -> None:
    """Each by its own name, so that the rest can be read."""
    seen = masked(line)
    assert "shown" in seen
    assert "hid" not in seen
    assert seen == line or MASKED in seen


def test_a_router_is_a_pair_of_applications() -> None:
    assert [each.name for each in applications("router", None)] == ["router-active", "router-backup"]
    assert [each.arguments for each in applications("router", "backup", ("-x",))] == [("--role", "backup", "-x")]


@pytest.mark.parametrize(
    ("name", "role", "said"),
    [
        ("gateway", None, "unknown application 'gateway': choose from router, ledger"),
        ("spark", None, "unknown application 'spark'"),
        ("ledger", "active", "--role is only for routers"),
        ("router", "both", "unknown --role both: choose from active, backup"),
    ],
)
def test_an_application_that_there_is_not(name: str, role: str | None, said: str) -> None:
    with pytest.raises(SubmissionError, match=said):
        applications(name, role)


def test_a_bundle_has_what_applications_need(tmp_path: Path) -> None:
    bundle = make_bundle([BASE], tmp_path)
    with WheelFile(shutil.copy(bundle.packages, tmp_path / f"{bundle.packages.stem}.whl")) as wheel:
        names = wheel.namelist()
        for name in names:
            wheel.read(name)  # raises if it is not as RECORD has it
    assert {name.split("/")[0] for name in names} == {
        *PACKAGES,
        f"waystation-{metadata.version('waystation')}.dist-info",
    }
    assert {"jobs/router/__main__.py", "jobs/query/views.sql", "conf/fairscheduler.xml"} <= set(names)
    assert not any("__pycache__" in name or name.startswith("gateway") for name in names)
    [described] = metadata.distributions(name="waystation", path=[str(bundle.packages)])
    assert described.version == metadata.version("waystation")


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


@pytest.fixture
def submit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """The command with these arguments: what it says, after its status."""
    monkeypatch.setenv("WAYSTATION_CACHE", str(tmp_path / "cache"))

    def run_submit(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["waystation", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capfd.readouterr()
        return f"{ended.value.code or 0} {said.out}{said.err}"

    return run_submit


def test_every_file_that_is_given_counts(tmp_path: Path, submit: Callable[..., str]) -> None:
    """Before the command or after it, whatever it is called: left out is only the one that is installed for the local
    stack. One that is not there is an error."""
    local, other = tmp_path / "local.toml", tmp_path / "other.toml"
    assert submit("--conf", str(local), "submit", "ledger", "--dry-run").startswith(
        f"1 cannot read the configuration file {local}"
    )
    local.write_text(IN_PODS)
    other.write_text('kafka.prefix = "mine."')
    said = submit("--conf", str(local), "submit", "ledger", "--dry-run", "--conf", str(other))
    assert said.startswith("0 ")
    assert "--master k8s://https://h:6443" in said
    assert "WAYSTATION_KAFKA__PREFIX=mine." in said
    assert "LOG__FORMAT" not in said
