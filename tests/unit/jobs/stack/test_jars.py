"""Which of the resolved jars Spark gets, and where sets of jars stand."""

from pathlib import Path

import pytest

from jobs.errors import JarsError
from jobs.stack import jars

RESOLVED = (
    "delta-spark_4.2_2.13-4.4.0.jar",
    "spark-sql-kafka-0-10_2.13-4.2.0.jar",
    "kafka-clients-3.9.2.jar",
    "commons-pool2-2.13.1.jar",
    "commons-pool-1.6.jar",
    "jackson-datatype-jdk8-2.13.5.jar",
    "shims-0.9.25.jar",
    "snappy-java-1.1.10.8.jar",
)


@pytest.mark.parametrize(
    ("jar", "artifact"),
    [
        ("kafka-clients-3.9.2.jar", "kafka-clients"),
        ("delta-spark_4.2_2.13-4.4.0.jar", "delta-spark_4.2_2.13"),
        ("netty-transport-native-epoll-4.2.13.Final-linux-x86_64.jar", "netty-transport-native-epoll"),
    ],
)
def test_artifact_name(jar, artifact):
    assert jars.artifact_name(Path(jar)) == artifact


def test_spark_gets_only_what_it_lacks(tmp_path):
    for name in RESOLVED:
        (tmp_path / name).touch()
    own = {"snappy-java", "commons-pool"}
    assert {jar.name for jar in jars.missing_from(own, tmp_path)} == set(RESOLVED[:4])


def test_what_is_not_resolved_says_how_to_mend_it(tmp_path):
    environ = {"WAYSTATION_CACHE": str(tmp_path)}
    for look_up in (jars.spark_jars, jars.kafka_classpath):
        with pytest.raises(JarsError, match="waystation jars"):
            look_up(environ)


def test_a_set_stands_under_the_hash_of_its_declaration(tmp_path):
    directory = jars.jars_directory({"WAYSTATION_CACHE": str(tmp_path)})
    assert directory.parent == tmp_path / "jars"
    assert len(directory.name) == 16


def test_resolving_what_is_there_does_nothing(tmp_path):
    environ = {"WAYSTATION_CACHE": str(tmp_path)}
    jars.jars_directory(environ).mkdir(parents=True)
    said: list[str] = []
    assert jars.resolve(environ, said.append) == jars.jars_directory(environ)
    assert not said


def test_the_broker_can_log(tmp_path):
    environ = {"WAYSTATION_CACHE": str(tmp_path)}
    spark = jars.jars_directory(environ) / "spark"
    spark.mkdir(parents=True)
    (spark / "log4j-core-2.25.3.jar").touch()
    (spark / "kafka-clients-3.9.2.jar").touch()
    first, last = jars.kafka_classpath(environ).split(":")
    assert first.endswith("log4j-core-2.25.3.jar")
    assert last.endswith("/kafka/*")
