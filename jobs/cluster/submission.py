"""The command that submits an application: `spark-submit` with everything, from settings and bundle alone."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from jobs.cluster.applications import Application
from jobs.cluster.bundle import Bundle
from schemas.settings import ENVIRONMENT_PREFIX, Settings

ARCHIVED_PYTHON = "./environment/bin/python"
"""Where a packed environment is unpacked for an executor, and for a driver that the cluster runs."""
IN_IMAGE = "local:///opt/waystation/launch.py"
"""The launcher in the image (`conf/kubernetes/Dockerfile.spark`), which has packages and jars as well."""
MASKED = "********"
FILES = ("--jars", "--py-files", "--files", "--archives")

_SECRET = re.compile(r"(?i)password|secret|token|key")


class Submission(NamedTuple):
    """`argv` begins with `spark-submit`; `environment` is what the process has beside its own."""

    name: str
    argv: tuple[str, ...]
    environment: Mapping[str, str]

    def shown(self) -> Iterator[str]:
        """Environment and command for a person's eyes: an option or argument a line, a file a line, secrets masked."""
        for name, value in sorted(self.environment.items()):
            yield masked(f"{name}={value}")
        program, *rest = self.argv
        yield program
        while rest and rest[0].startswith("--"):  # options of spark-submit, each with a value
            option, value, *rest = rest
            if option in FILES:
                yield option
                yield from (f"  {file}" for file in value.split(","))
            else:
                yield masked(f"{option} {value}")
        yield from rest


class Tools(NamedTuple):
    """What a submission is made with on this machine; `jars` of Spark's Kafka source, Delta and the store."""

    spark_home: Path
    java_home: Path
    python: str
    jars: Sequence[Path]


def submission(
    application: Application, settings: Settings, bundle: Bundle, tools: Tools, environ: Mapping[str, str]
) -> Submission:
    """How `application` is submitted. `environ` is searched for overrides of the configuration (`WAYSTATION_…__…`)."""
    cluster = settings.cluster
    in_image = cluster.python_from == "image"
    told = _told(settings, bundle, environ)
    argv = [str(tools.spark_home / "bin" / "spark-submit")]
    argv += ["--master", cluster.master, "--deploy-mode", cluster.deploy_mode]
    argv += ["--name", f"waystation-{application.name}"]
    if not in_image:
        argv += ["--jars", ",".join(map(str, tools.jars)), "--py-files", str(bundle.packages)]
    if cluster.python_from == "archive":
        argv += ["--archives", f"{cluster.archive}#environment"]
    if cluster.deploy_mode == "cluster":
        argv += ["--files", ",".join(map(str, bundle.configuration))]
    if cluster.queue:
        argv += ["--queue", cluster.queue]
    size = application.size_of(settings)
    argv += ["--driver-memory", size.driver_memory]
    for name, value in (_spark_settings(application, settings, told) | cluster.spark).items():
        argv += ["--conf", f"{name}={value}"]
    argv += [IN_IMAGE if in_image else str(bundle.launcher), application.module, *application.arguments]
    environment = {"SPARK_HOME": str(tools.spark_home), "JAVA_HOME": str(tools.java_home)}
    if cluster.deploy_mode == "client":
        environment |= {**told, "PYSPARK_DRIVER_PYTHON": tools.python}
    return Submission(application.name, tuple(argv), environment)


def _told(settings: Settings, bundle: Bundle, environ: Mapping[str, str]) -> dict[str, str]:
    """What tells the driver its settings; in mode "cluster" its files lie in its working directory."""
    overrides = {name: value for name, value in environ.items() if name.startswith(ENVIRONMENT_PREFIX) and "__" in name}
    if settings.cluster.deploy_mode == "cluster":
        return overrides | {"WAYSTATION_CONF": os.pathsep.join(file.name for file in bundle.configuration)}
    files = os.pathsep.join(str(file) for file in bundle.configuration)
    return overrides | {"WAYSTATION_CONF": files, "WAYSTATION_DATA": settings.data}


def _spark_settings(application: Application, settings: Settings, told: Mapping[str, str]) -> dict[str, str]:
    cluster, size = settings.cluster, application.size_of(settings)
    java_options = application.java_options(settings)
    of_spark = {
        "spark.executor.memory": size.memory,
        "spark.executor.cores": str(size.cores),
        "spark.executor.extraJavaOptions": java_options,
        "spark.driver.extraJavaOptions": java_options,
        **application.spark_settings(),
    }
    if cluster.driver_host:
        of_spark |= {"spark.driver.host": cluster.driver_host}
    if cluster.python_from != "image":
        archived = cluster.python_from == "archive"
        of_spark |= {"spark.pyspark.python": ARCHIVED_PYTHON if archived else cluster.python_command}
    environment = told if cluster.deploy_mode == "cluster" else {}
    match cluster.kind:
        case "standalone":
            of_spark |= {"spark.cores.max": str(size.executors * size.cores)}
        case "yarn":
            of_spark |= {"spark.executor.instances": str(size.executors)}
            of_spark |= {f"spark.yarn.appMasterEnv.{name}": value for name, value in environment.items()}
        case "kubernetes":
            of_spark |= {
                "spark.executor.instances": str(size.executors),
                "spark.kubernetes.container.image": cluster.image,
                "spark.kubernetes.namespace": cluster.namespace,
                "spark.kubernetes.authenticate.driver.serviceAccountName": cluster.service_account,
                "spark.kubernetes.file.upload.path": cluster.upload,
            }
            of_spark |= {f"spark.kubernetes.driverEnv.{name}": value for name, value in environment.items()}
    return {name: value for name, value in of_spark.items() if value}


def masked(line: str) -> str:
    """The line without what may be a secret: the value of whatever is called so, unless that is the name of a file."""
    name, equals, _ = line.partition("=")
    is_secret = bool(equals and _SECRET.search(name)) and "file" not in name.lower()
    return f"{name}={MASKED}" if is_secret else line
