"""Fixtures for all tests: a JDK, the JVM libraries, a real broker, a Spark session; each made when asked for."""

import gc
import logging
import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import structlog

from harness.processes import Broker
from jobs.stack import jars as jar_sets
from jobs.stack.class_archive import make_archive
from jobs.stack.java import find_java
from jobs.stack.topics import admin_client, create_topics
from schemas.settings import process_settings
from schemas.topics import DAY_MS, Topics
from tests import in_processes
from tests.accepted_connections import close_what_is_forgotten

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.gateway_site import SiteBroker

pytest_plugins = ["tests.draw", "tests.quick", "tests.processor_time"]
pytest.register_assert_rewrite(
    "tests.acceptance.gateway_soak", "tests.acceptance.site_soak", "tests.faithful_client", "harness.gateway_site"
)

# Applications that tests start by themselves take any free port for their metrics: many run on one machine.
for _port in ("ROUTER__METRICS_PORT", "ROUTER__BACKUP_METRICS_PORT", "LEDGER__METRICS_PORT"):
    os.environ.setdefault(f"WAYSTATION_{_port}", "0")

# JVMs that tests start live for a minute or two: the second compiler would take more time than it saves.
_FIRST_COMPILER = "-XX:TieredStopAtLevel=1"
_SPARK = f"{_FIRST_COMPILER} -XX:-DontCompileHugeMethods"
for _part, _options in (
    ("BROKER", _FIRST_COMPILER),
    ("ROUTER", _SPARK),
    ("LEDGER", f"{_SPARK} -Xss16m -XX:+UseSerialGC"),
):
    os.environ.setdefault(f"WAYSTATION_STACK__{_part}_JAVA_OPTIONS", _options)


# A test's tables have a few rows: generating and compiling code for a query costs more than it saves, and so does
# planning the rest of it anew after each stage. Applications in processes of their own do both, as in production.
FEW_ROWS = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}


def pytest_configure(config: pytest.Config) -> None:
    close_what_is_forgotten()
    if config.pluginmanager.hasplugin("xdist"):
        config.pluginmanager.register(in_processes)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """py4j leaves the sockets of threads that have ended to the garbage collector."""
    left_open = pytest.mark.filterwarnings(
        "ignore:Exception ignored in. <socket.socket:pytest.PytestUnraisableExceptionWarning"
    )
    for item in items:
        if _uses_spark(item):
            item.add_marker(left_open)


def pytest_collection_finish() -> None:
    """Modules and tests stay until the end: the collector need not look at them again and again."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """What a test with Spark, or a file of others, leaves to the garbage collector is not blamed on a later one."""
    if _uses_spark(item) or nextitem is None or nextitem.path != item.path:
        gc.collect()


def _uses_spark(item: pytest.Item) -> bool:
    return "spark" in getattr(item, "fixturenames", ())


class LocalBroker:
    """A real broker for tests; each test takes a prefix of its own, so that they share it without meeting."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def topics(self, prefix: str, ingress_partitions: int = 2, shards: int = 4) -> Topics:
        """Create all topics under `prefix`; their names."""
        topics = Topics(prefix)
        create_topics(admin_client(self.bootstrap, {}), topics.declared(ingress_partitions, shards, DAY_MS))
        return topics


@pytest.fixture
def logging_kept() -> Iterator[None]:
    """For tests in whose process an application configures logging: later tests find it as it was, and not on a
    standard error that was captured and closed."""
    before, root = structlog.get_config(), logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    structlog.configure(**before)
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture(scope="session")
def java_home() -> Path:
    return find_java(os.environ).home


@pytest.fixture(scope="session")
def jars() -> Path:
    """The directory with the resolved `spark` and `kafka` jars; prepares what Spark needs if `make env` has not."""
    make_archive(os.environ, print)
    return jar_sets.jars_directory()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory, java_home: Path, jars: Path) -> Iterator[LocalBroker]:
    shared = Broker(tmp_path_factory.mktemp("broker"), java_home).start()
    yield LocalBroker(shared.bootstrap)
    shared.stop()


@pytest.fixture
def own_broker(tmp_path: Path, java_home: Path, jars: Path) -> Iterator[Broker]:
    """A broker of the test's own, to be stopped and killed."""
    broker = Broker(tmp_path, java_home, heap="256m").start()
    yield broker
    broker.stop()


@pytest.fixture(scope="module")
def of_site(tmp_path_factory: pytest.TempPathFactory, java_home: Path, jars: Path) -> "Iterator[SiteBroker]":
    """A broker for sites of several gateways, to which the ways can be cut."""
    from tests.gateway_site import site_broker

    with site_broker(tmp_path_factory.mktemp("broker"), java_home) as broker:
        yield broker


@pytest.fixture
def unique_prefix() -> str:
    """A topic prefix that no other test has."""
    return f"t{uuid.uuid4().hex[:10]}."


@pytest.fixture(scope="session")
def spark(java_home: Path, jars: Path, tmp_path_factory: pytest.TempPathFactory) -> "Iterator[SparkSession]":
    """A small session with Delta and Kafka: UTC, two shuffle partitions, no UI; its JVM has the ledger's options."""
    from jobs.runtime.spark_session import JAVA_OPTIONS, build_session
    from tests.draw import SOAK

    os.environ["JAVA_HOME"] = str(java_home)
    warehouse = tmp_path_factory.mktemp("warehouse")
    extra = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
        "spark.sql.warehouse.dir": str(warehouse),
        JAVA_OPTIONS: process_settings(os.environ).stack.ledger_java_options,
    }
    if not SOAK:
        extra |= FEW_ROWS
    session = build_session("tests", "local[2]", extra)
    yield session
    session.stop()


@pytest.fixture
def compiling_spark(spark: "SparkSession") -> "Iterator[SparkSession]":
    """The session with Spark's own values of FEW_ROWS: for tests about the code that it generates."""
    before = {name: str(spark.conf.get(name)) for name in FEW_ROWS}
    for name in before:
        spark.conf.unset(name)
    yield spark
    for name, value in before.items():
        spark.conf.set(name, value)
