"""The command that submits an application: a complete `spark-submit`, computed from settings and bundle alone."""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from jobs.cluster.applications import Application
from jobs.cluster.bundle import Bundle
from jobs.cluster.carried import overlay_variables, overrides, refuse_secrets
from jobs.cluster.masking import masked
from schemas.settings import Settings

ARCHIVED_PYTHON = "./environment/bin/python"
"""The interpreter of an unpacked environment, for executors and for a driver on the cluster."""
IN_IMAGE = "local:///opt/waystation/launch.py"
"""The launcher in the image (`conf/kubernetes/Dockerfile.spark`), which contains packages and jars as well."""
BASE_IN_IMAGE = "/opt/waystation/base.toml"
DATA_IN_POD = "/var/lib/waystation"
"""Status files of a driver in a pod: a volume that exists as long as the pod."""
FILES = ("--jars", "--py-files", "--files", "--archives")


class Submission(NamedTuple):
    """`argv` begins with `spark-submit`; `environment` is added to the process's own. `ended_by` is the command that
    ends the application if its driver runs on the cluster and `spark-submit` only watches it; else empty."""

    name: str
    argv: tuple[str, ...]
    environment: Mapping[str, str]
    ended_by: str = ""

    def shown(self) -> Iterator[str]:
        """Environment and command for people: one option, argument or file per line, secrets masked."""
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
        yield from map(masked, rest)


class Tools(NamedTuple):
    """The tools for a submission on this machine; `jars` of Spark's Kafka source, Delta and the store."""

    spark_home: Path
    java_home: Path
    python: str
    jars: Sequence[Path]


def submission(
    application: Application, settings: Settings, bundle: Bundle, tools: Tools, environ: Mapping[str, str]
) -> Submission:
    """The submission of `application`. `environ` is searched for overrides of the configuration (`WAYSTATION_…__…`)."""
    cluster = settings.cluster
    in_cluster = cluster.deploy_mode == "cluster"
    variables = _settings_variables(settings, bundle, environ)
    argv = [str(tools.spark_home / "bin" / "spark-submit")]
    argv += ["--master", cluster.master, "--deploy-mode", cluster.deploy_mode]
    argv += ["--name", f"waystation-{application.name}"]
    if not cluster.in_pods:
        argv += ["--jars", ",".join(map(str, tools.jars)), "--py-files", str(bundle.packages)]
    if cluster.python_from == "archive":
        argv += ["--archives", f"{cluster.archive}#environment"]
    if in_cluster and not cluster.in_pods:
        argv += ["--files", ",".join(map(str, bundle.configuration))]
    if cluster.queue:
        argv += ["--queue", cluster.queue]
    size = application.size_of(settings)
    argv += ["--driver-memory", size.driver_memory]
    of_spark = (
        _spark_settings(application, settings) | _of_the_driver(settings, variables, tools.python) | cluster.spark
    )
    for name, value in of_spark.items():
        argv += ["--conf", f"{name}={value}"]
    argv += [IN_IMAGE if cluster.in_pods else str(bundle.launcher), application.module, *application.arguments]
    environment = {"SPARK_HOME": str(tools.spark_home), "JAVA_HOME": str(tools.java_home)}
    if in_cluster:
        return Submission(application.name, tuple(argv), environment, _ended_by(application, settings))
    return Submission(application.name, tuple(argv), environment | variables)


def _settings_variables(settings: Settings, bundle: Bundle, environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that pass the settings to the driver. In YARN's mode "cluster" its files are in its working
    directory; a pod has none. Raises SubmissionError if others could see a secret."""
    variables = overrides(environ)
    base, *overlays = bundle.configuration
    if settings.cluster.deploy_mode == "client":
        files = os.pathsep.join(map(str, (base, *overlays)))
        return variables | {"WAYSTATION_CONF": files, "WAYSTATION_DATA": settings.data}
    if settings.cluster.in_pods:
        variables = overlay_variables(overlays, settings) | variables
        variables |= {"WAYSTATION_CONF": BASE_IN_IMAGE, "WAYSTATION_DATA": DATA_IN_POD}
    else:
        variables |= {"WAYSTATION_CONF": os.pathsep.join(file.name for file in (base, *overlays))}
    refuse_secrets(variables, settings)
    return variables


def _of_the_driver(settings: Settings, variables: Mapping[str, str], python: str) -> dict[str, str]:
    """The driver's interpreter and variables, wherever it runs. Spark has one setting for Python everywhere, and one
    for the driver's that overrides it, which no environment variable does."""
    cluster = settings.cluster
    if cluster.deploy_mode == "client":
        return {"spark.pyspark.driver.python": python}
    if cluster.kind == "yarn":
        return {f"spark.yarn.appMasterEnv.{name}": value for name, value in variables.items()}
    data = "spark.kubernetes.driver.volumes.emptyDir.data.mount.path"
    return {data: DATA_IN_POD} | {f"spark.kubernetes.driverEnv.{name}": value for name, value in variables.items()}


def _ended_by(application: Application, settings: Settings) -> str:
    if settings.cluster.kind == "yarn":
        return f"yarn application -kill ID, with the id of waystation-{application.name}"
    labels = f"spark-role=driver,spark-app-name=waystation-{application.name}"
    return f"kubectl --namespace {settings.cluster.namespace} delete pod --selector {labels}"


def _spark_settings(application: Application, settings: Settings) -> dict[str, str]:
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
    match cluster.kind:
        case "standalone":
            of_spark |= {"spark.cores.max": str(size.executors * size.cores)}
        case "yarn":
            of_spark |= {"spark.executor.instances": str(size.executors)}
        case "kubernetes":
            of_spark |= {
                "spark.executor.instances": str(size.executors),
                "spark.kubernetes.container.image": cluster.image,
                "spark.kubernetes.namespace": cluster.namespace,
                "spark.kubernetes.authenticate.driver.serviceAccountName": cluster.service_account,
            }
    return {name: value for name, value in of_spark.items() if value}
