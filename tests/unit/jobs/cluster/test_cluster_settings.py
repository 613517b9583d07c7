"""What `[cluster]` and `[storage]` refuse, and how one section feeds deltalake and Hadoop."""

from pathlib import Path
from typing import Any

import pytest

from schemas.cluster_settings import router_slots
from schemas.errors import SettingsError
from schemas.settings import Settings, load_settings, with_secrets
from schemas.storage_settings import hadoop_settings, store_environment

ROOT = Path(__file__).parents[4]
STANDALONE = 'cluster.master = "spark://master:7077"\nkafka.bootstrap = "broker:9092"\ndata = "/mnt/shared"\n'
KUBERNETES = (
    'cluster.master = "k8s://https://host:6443"\ncluster.image = "waystation-spark"\nkafka.bootstrap = "broker:9092"\n'
    'storage.tables = "s3a://bucket/tables"\n'
)
YARN = STANDALONE.replace("spark://master:7077", "yarn") + 'cluster.archive = "environment.tar.gz"\n'


def loaded(directory: Path, overlay: str) -> Settings:
    file = directory / "overlay.toml"
    file.write_text(overlay)
    return load_settings([ROOT / "conf" / "base.toml", file], {})


def test_the_example_is_valid() -> None:
    settings = load_settings([ROOT / "conf" / "base.toml", ROOT / "conf" / "cluster.toml"], {})
    assert settings.cluster.kind == "standalone"
    assert settings.tables == "s3a://example-waystation/tables"


@pytest.mark.parametrize(
    ("overlay", "kind", "python"),
    [(STANDALONE, "standalone", "installed"), (YARN, "yarn", "archive"), (KUBERNETES, "kubernetes", "image")],
)
def test_where_python_comes_from_goes_by_the_kind_of_cluster(
    tmp_path: Path, overlay: str, kind: str, python: str
) -> None:
    cluster = loaded(tmp_path, overlay).cluster
    assert (cluster.kind, cluster.python_from) == (kind, python)


@pytest.mark.parametrize(
    ("overlay", "said"),
    [
        (
            'cluster.master = "mesos://host:5050"',
            r'overlay\.toml: cluster.master = "mesos://host:5050" is not allowed: expected "spark://host:7077", "yarn"',
        ),
        ('cluster.mastr = "yarn"', r"cluster\.mastr is not a setting. Did you mean cluster\.master\?"),
        (STANDALONE + 'cluster.deploy_mode = "cluster"', "does not run Python drivers"),
        (STANDALONE + 'cluster.image = "x"', r"cluster.image applies only to k8s://"),
        (STANDALONE + 'cluster.queue = "x"', "cluster.queue applies only to yarn"),
        (STANDALONE + 'cluster.python = "image"', r'"image" is allowed only with k8s://'),
        (STANDALONE + 'cluster.archive = "x.tar.gz"', "cluster.archive applies only to"),
        (STANDALONE.replace("broker:9092", "localhost:9092"), "an address of this machine only"),
        (STANDALONE.replace("/mnt/shared", "here"), "each machine of spark://master:7077 would have its own"),
        (
            STANDALONE + "cluster.router.cores = 3",
            r"1 × 3 tasks are too few.* at least 2 × kafka.ingress_partitions = 4",
        ),
        (
            STANDALONE + "cluster.router.cores = 1\nrouter.standby_query = false",
            "at least kafka.ingress_partitions = 2",
        ),
        (YARN.replace("environment.tar.gz", ""), "cluster.archive is empty"),
        (YARN + 'cluster.deploy_mode = "cluster"\ncluster.driver_host = "x"', "cluster.driver_host applies only to"),
        (KUBERNETES.replace('"waystation-spark"', '""'), "cluster.image is empty"),
        (KUBERNETES + 'cluster.python = "installed"', 'set it to "image" or "auto"'),
        ("cluster.lease_s = 1.0", "cluster.lease_s = 1.0 is not allowed"),
        ('storage.tables = "hdfs://name/tables"', "deltalake both support"),
        (
            'storage.tables = "/mnt/x"\nstorage.endpoint = "http://x"',
            r"storage.endpoint does not apply to .* only to s3a://",
        ),
        ('storage.secret_file = "/x"', "storage.secret_file does not apply to .* only to object stores"),
        ('storage.tables = "s3a://b/t"\nstorage.access_key = "x"', "belong together"),
        ('kafka.password_file = "/x"\nkafka.client = { "sasl.password" = "y" }', "are both set"),
    ],
)
def test_what_is_unknown_or_contradicts_is_refused(tmp_path: Path, overlay: str, said: str) -> None:
    """In one sentence that names the key."""
    with pytest.raises(SettingsError, match=said):
        loaded(tmp_path, overlay)


@pytest.mark.parametrize(
    ("standby", "roles", "slots"), [(True, 1, 8), (False, 1, 4), (False, 2, 8), (True, 2, 8)], ids=str
)
def test_a_role_and_its_standby_each_need_a_slot_for_every_partition(standby: bool, roles: int, slots: int) -> None:
    """Where both roles share a process there are no standby queries."""
    assert router_slots(4, standby, roles) == slots


def test_a_router_without_standby_is_content_with_half_the_slots(tmp_path: Path) -> None:
    loaded(tmp_path, STANDALONE + "cluster.router.cores = 2\nrouter.standby_query = false")


def test_a_master_on_this_machine_may_use_what_others_do_not_reach(tmp_path: Path) -> None:
    loaded(tmp_path, 'cluster.master = "spark://127.0.0.1:7077"')


def test_the_password_is_read_from_its_file(tmp_path: Path) -> None:
    secret = tmp_path / "password"
    settings = loaded(tmp_path, f'kafka.password_file = "{secret}"\nkafka.client = {{ "sasl.username" = "u" }}')
    assert "sasl.password" not in settings.kafka.client
    with pytest.raises(SettingsError, match=r"password_file = .*' cannot be read: No such file or directory$"):
        with_secrets(settings)
    secret.write_text("p w\n")
    assert with_secrets(settings).kafka.client == {"sasl.username": "u", "sasl.password": "p w"}


S3 = (
    'tables = "s3a://bucket/path"\nendpoint = "http://minio:9000"\nregion = "eu"\npath_style = true\n'
    'access_key = "id"\nsecret_file = "f"'
)
AZURE = 'tables = "abfss://box@account.dfs.core.windows.net/path"\nsecret_file = "f"'
GOOGLE = 'tables = "gs://bucket/path"\nsecret_file = "/key.json"'


@pytest.mark.parametrize(
    ("storage", "environment", "hadoop"),
    [
        (
            S3,
            {
                "AWS_ENDPOINT_URL": "http://minio:9000",
                "AWS_REGION": "eu",
                "AWS_ACCESS_KEY_ID": "id",
                "AWS_SECRET_ACCESS_KEY": "secret",
                "AWS_ALLOW_HTTP": "true",
            },
            {
                "fs.s3a.endpoint": "http://minio:9000",
                "fs.s3a.endpoint.region": "eu",
                "fs.s3a.path.style.access": "true",
                "fs.s3a.access.key": "id",
                "fs.s3a.secret.key": "secret",
                "fs.s3a.connection.ssl.enabled": "false",
            },
        ),
        ('tables = "s3a://bucket/path"', {}, {}),
        (
            AZURE,
            {"AZURE_STORAGE_ACCOUNT_NAME": "account", "AZURE_STORAGE_ACCOUNT_KEY": "secret"},
            {"fs.azure.account.key.account.dfs.core.windows.net": "secret"},
        ),
        (
            GOOGLE,
            {"GOOGLE_SERVICE_ACCOUNT": "/key.json", "GOOGLE_APPLICATION_CREDENTIALS": "/key.json"},
            {
                "fs.gs.impl": "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFileSystem",
                "fs.AbstractFileSystem.gs.impl": "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFS",
                "fs.gs.auth.type": "SERVICE_ACCOUNT_JSON_KEYFILE",
                "fs.gs.auth.service.account.json.keyfile": "/key.json",
            },
        ),
        ("", {}, {}),
    ],
)
def test_one_section_feeds_deltalake_and_hadoop(
    tmp_path: Path, storage: str, environment: dict[str, Any], hadoop: dict[str, Any]
) -> None:
    settings = loaded(tmp_path, f"[storage]\n{storage}").storage
    secret = "secret" if settings.secret_file == "f" else ""
    assert store_environment(settings, secret) == environment
    assert hadoop_settings(settings, secret) == hadoop


def test_further_settings_go_over_those_derived(tmp_path: Path) -> None:
    more = 'deltalake = { AWS_REGION = "us" }\nhadoop = { "fs.s3a.connection.maximum" = "50" }'
    settings = loaded(tmp_path, f"[storage]\n{S3}\n{more}").storage
    assert store_environment(settings, "")["AWS_REGION"] == "us"
    assert hadoop_settings(settings, "")["fs.s3a.connection.maximum"] == "50"
