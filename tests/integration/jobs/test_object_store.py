"""Tables in an S3-compatible store: deltalake and Spark, both configured by the one section `[storage]`.

Of the kinds of store this one is tested against a server (moto's); Azure's and Google's by their
settings only (tests/unit/jobs/cluster/test_cluster_settings.py).
"""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import boto3
import pytest
from deltalake import DeltaTable, write_deltalake
from pyarrow import table

from harness.processes import HOST
from jobs.maintain.run import DONE, Request, maintain
from jobs.maintain.vacuum import listed
from jobs.query.ledger_reader import LedgerReader
from jobs.runtime.storage import use_store
from jobs.stack import jars as jar_sets
from jobs.stack.ports import Ports
from jobs.stack.process import ManagedProcess, stop_all
from pipelines.kafka.positions import ReadTopic
from pipelines.storage.checkpoints import Checkpoint, TopicReplaced
from pipelines.streams import StreamId
from schemas.settings import Settings, load_settings
from schemas.tables import MESSAGES
from tests import draw
from tests.unit.jobs.ledger_tables import append
from tests.waiting import wait_for

ROOT = Path(__file__).parents[3]
BUCKET = "waystation"
KEY, SECRET = "tester", "not so secret"


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Settings]:
    """Of a store on this machine, with its secret in a file."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    # Not a thread of this process: some of deltalake's calls hold Python's lock while they wait for an answer.
    port = Ports(tmp_path).choose("s3", HOST, 0, "")
    command = [sys.executable, "-m", "moto.server", "-H", HOST, "-p", str(port)]
    server = ManagedProcess(command, os.environ, tmp_path / "s3.log")
    wait_for(lambda: server.ended() or _answers(port), "the store answers")
    (tmp_path / "secret").write_text(SECRET)
    overlay = tmp_path / "storage.toml"
    overlay.write_text(f"""
        data = "{tmp_path}/data"
        [storage]
        tables = "s3a://{BUCKET}/tables"
        endpoint = "http://{HOST}:{port}"
        region = "us-east-1"
        path_style = true
        access_key = "{KEY}"
        secret_file = "{tmp_path}/secret"
    """)
    settings = load_settings([ROOT / "conf" / "base.toml", overlay], {})
    before = dict(os.environ)
    use_store(settings.storage)
    added = {name for name in os.environ if name not in before}
    try:
        client = boto3.client("s3", endpoint_url=settings.storage.endpoint, region_name="us-east-1")
        client.create_bucket(Bucket=BUCKET)
        yield settings
    finally:
        stop_all([server], 10)
        for name in added:
            del os.environ[name]


def _answers(port: int) -> bool:
    with socket.socket() as connection:
        return connection.connect_ex((HOST, port)) == 0


def test_maintenance(settings: Settings, tmp_path: Path) -> None:
    """Compacts, and deletes what tasks and an earlier generation left; what no commit names is still young here."""
    now = datetime.now(UTC)
    for offset in range(6):
        append(settings.tables, MESSAGES.name, [{"offset": offset, "appended": now - timedelta(days=1)}])
    client = boto3.client("s3", endpoint_url=settings.storage.endpoint, region_name="us-east-1")

    def put(name: str) -> str:
        client.put_object(Bucket=BUCKET, Key=f"tables/messages/{name}", Body=b"x")
        return name

    batch = "9-0198c0de-0000-4000-8000-000000000000"
    gone = {put("_checkpoints/messages-1/offsets/0"), put(f"{batch}/__magic_job-1/part.pending")}
    later = datetime.now(UTC) + timedelta(seconds=1)
    wait_for(lambda: datetime.now(UTC) > later, "a later second: the store knows no smaller part")
    stays = {put("_checkpoints/messages-2/offsets/0"), put(f"{batch}/date=2026-11-20/part-0.parquet")}

    def run(at: datetime) -> list[str]:
        results = maintain(settings, Request(), tmp_path, at, lambda: False, lambda _: None)
        assert [one for one in results if one.state != DONE] == []
        return [one.task for one in results]

    assert run(now) == ["compaction"]
    assert run(now + timedelta(days=60)) == ["vacuum", "earlier generation messages-1"]
    names = {file.path for file in listed(f"{settings.tables}/messages")}
    assert names & (gone | stays) == stays
    assert DeltaTable(f"{settings.tables}/messages").to_pyarrow_table().num_rows == 6
    assert run(now + timedelta(days=60)) == []


def test_deltalake_reads_and_commits(settings: Settings) -> None:
    """Told by the environment that `use_store` makes; a commit that another was faster with is not lost over it."""
    uri = f"{settings.tables}/example"
    write_deltalake(uri, table({"n": [1, 2]}), mode="append")
    behind, ahead = DeltaTable(uri), DeltaTable(uri)
    write_deltalake(ahead, table({"n": [3]}), mode="append")
    write_deltalake(behind, table({"n": [4]}), mode="append")
    assert sorted(DeltaTable(uri).to_pyarrow_table()["n"].to_pylist()) == [1, 2, 3, 4]
    assert DeltaTable(uri).version() == 2


@draw.long_test
@pytest.mark.timeout(1800)
def test_spark_appends_with_checkpoints_in_the_store(settings: Settings, java_home: Path, tmp_path: Path) -> None:
    """A history table's query: Spark writes the files of its batches by S3A's magic committer, keeps its checkpoint
    beside them, copies are taken out of them, and deltalake commits; started again it goes on from there. Read with
    Spark and with DuckDB."""
    jar_sets.resolve(os.environ, print, jar_sets.STORES["s3"])
    environ = os.environ | {"JAVA_HOME": str(java_home)}
    command = [sys.executable, str(Path(__file__).parent / "store_appender.py")]
    arguments = [str(ROOT / "conf" / "base.toml"), str(tmp_path / "storage.toml"), str(tmp_path / "source")]
    for batch in range(2):
        done = subprocess.run(
            [*command, *arguments, str(batch)], env=environ, capture_output=True, text=True, timeout=800
        )
        assert done.returncode == 0, done.stderr[-4000:]
        assert done.stdout.split() == [str(10 * (batch + 1))]
    reader = LedgerReader(settings.tables)
    assert reader.query('SELECT count(*), count(DISTINCT "offset") FROM quarantine').rows == [(20, 20)]


def test_a_checkpoint_in_the_store_is_that_of_its_topic(settings: Settings) -> None:
    """Nothing is there yet, then what a query left."""
    topic = ReadTopic("ws.ingress", "id-1", {0: 0})
    checkpoint = Checkpoint(StreamId("messages"), settings.tables, "messages")
    assert checkpoint.is_new
    checkpoint.belongs_to(topic)
    client = boto3.client("s3", endpoint_url=settings.storage.endpoint, region_name="us-east-1")
    logs = {"offsets/0": 'v1\n{}\n{"ws.ingress":{"0":7}}', "commits/0": "v1\n{}"}
    for name, text in logs.items():
        key = f"{checkpoint.uri.removeprefix(f's3a://{BUCKET}/')}/{name}"
        client.put_object(Bucket=BUCKET, Key=key, Body=text.encode())
    assert not checkpoint.is_new
    assert checkpoint.taken() == {"ws.ingress": {0: 7}}
    checkpoint.belongs_to(topic)
    with pytest.raises(TopicReplaced):
        checkpoint.belongs_to(topic._replace(id="id-2"))
