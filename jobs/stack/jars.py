"""The JVM libraries: downloaded once with the Ivy that pyspark ships, in a cache that all checkouts share.

They are in `<cache>/jars/<hash of ivy.xml>/spark` and `…/kafka`; the cache is `$WAYSTATION_CACHE` or
`~/.cache/waystation`. A set is complete or absent: it is resolved into another directory and renamed. Ivy uses its
default repository. The libraries of each object store are a set of their own, resolved on demand. The files name every
library (`tools/lock_jars.py` writes them), so Ivy asks for nothing but these.

`waystation jars [STORE]...` resolves what is missing; commands that start a JVM resolve what they need.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from tempfile import mkdtemp
from typing import NamedTuple

from jobs.errors import JarsError
from jobs.stack.java import find_java

Progress = Callable[[str], None]


class JarSet(NamedTuple):
    """`file` in `conf` declares the artifacts of each of `confs`."""

    file: str
    confs: tuple[str, ...]
    what: str


LOCAL = JarSet("ivy.xml", ("spark", "kafka"), "Kafka, Delta, Spark's Kafka source")
SETTINGS = "ivy-settings.xml"
STORES = {"s3": JarSet("ivy-s3.xml", ("s3",), "Hadoop's S3A and the AWS SDK")}
"""By kind of store. For other kinds, vendors ship one jar, to be named in `cluster.spark`."""

TIMEOUT_S = 900
SHORT_LIVED = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Options of a JVM that ends before its second compiler would pay off."""

REMEDY = "run `waystation jars`"

BELONGS_TO_SPARK = re.compile(r"^(jackson-.*|scala-.*|shims|javax\.annotation-api)$")
"""Families of artifacts of which pyspark has its own versions; another member would clash with these."""

KAFKA_LOGGING = ("slf4j-api", "log4j-slf4j2-impl", "log4j-api", "log4j-core")
"""Kafka's own set has no binding of slf4j to log4j, so its broker would log nothing; the `spark` set has one."""

_VERSION = re.compile(r"-\d.*$")


def ivy_file(jar_set: JarSet = LOCAL) -> Path:
    """The installed declaration of a set."""
    return _conf(jar_set.file)


def _conf(name: str) -> Path:
    return Path(str(resources.files("conf").joinpath(name)))


def cache_directory(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("WAYSTATION_CACHE") or Path.home() / ".cache" / "waystation")


def jars_directory(environ: Mapping[str, str] = os.environ, jar_set: JarSet = LOCAL) -> Path:
    """The directory of the set for its present declaration, whether it exists or not."""
    digest = hashlib.sha256(ivy_file(jar_set).read_bytes()).hexdigest()[:16]
    return cache_directory(environ) / "jars" / digest


def spark_jars(environ: Mapping[str, str] = os.environ) -> list[Path]:
    """The value of Spark's `spark.jars`: the resolved artifacts that are not among pyspark's own.

    Raises JarsError if the set has not been resolved.
    """
    own = {artifact_name(jar) for jar in pyspark_jars().glob("*.jar")}
    return missing_from(own, _resolved(environ) / "spark")


def store_jars(kind: str, environ: Mapping[str, str] = os.environ) -> list[Path]:
    """What Spark needs besides `spark_jars` for a store of this kind (`StorageSettings.kind`); nothing if Waystation
    has no set for it. Raises JarsError if the set has not been resolved."""
    if kind not in STORES:
        return []
    directory = jars_directory(environ, STORES[kind])
    if not os.path.isdir(directory):
        raise JarsError(f"the JVM libraries for {kind} are not in {directory}: run `waystation jars {kind}`")
    own = {artifact_name(jar) for jar in pyspark_jars().glob("*.jar")}
    return missing_from(own, directory / kind)


def kafka_classpath(environ: Mapping[str, str] = os.environ) -> str:
    """The class path of the broker and its tools. Raises JarsError if the set has not been resolved."""
    jars = _resolved(environ)
    logging = [str(jar) for jar in sorted((jars / "spark").glob("*.jar")) if artifact_name(jar) in KAFKA_LOGGING]
    return ":".join([*logging, str(jars / "kafka" / "*")])


def artifact_name(jar: Path) -> str:
    """`kafka-clients` of `kafka-clients-3.9.2.jar`."""
    return _VERSION.sub("", jar.stem)


def missing_from(own: set[str], directory: Path) -> list[Path]:
    """The jars in `directory` whose artifact is neither in `own` nor in one of Spark's families."""
    names = ((artifact_name(jar), jar) for jar in sorted(directory.glob("*.jar")))
    return [jar for name, jar in names if name not in own and not BELONGS_TO_SPARK.match(name)]


def pyspark_jars() -> Path:
    """The directory of pyspark's own jars, found without importing pyspark."""
    return Path(str(resources.files("pyspark").joinpath("jars")))


def resolve(environ: Mapping[str, str], progress: Progress, jar_set: JarSet = LOCAL) -> Path:
    """The directory of the resolved set; resolves it first if it is missing, one process at a time.

    Raises JarsError if Ivy fails, JavaError if there is no JDK.
    """
    target = jars_directory(environ, jar_set)
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with locked(target.parent / "lock", progress, "is downloading the JVM libraries"):
        if not target.is_dir():
            _resolve_into(target, find_java(environ).command, progress, jar_set)
    return target


def resolve_for(store: str, environ: Mapping[str, str], progress: Progress) -> None:
    """Resolve what an application needs for tables in a store of this kind (`StorageSettings.kind`).

    Raises JarsError if Ivy fails, JavaError if there is no JDK.
    """
    resolve(environ, progress)
    if store in STORES:
        resolve(environ, progress, STORES[store])


def _resolve_into(target: Path, java: str, progress: Progress, jar_set: JarSet) -> None:
    for left_by_a_killed_one in target.parent.glob(f"{target.name}.*/"):
        shutil.rmtree(left_by_a_killed_one, ignore_errors=True)
    staged = Path(mkdtemp(prefix=f"{target.name}.", dir=target.parent))
    try:
        _run_ivy(java, staged, target.with_suffix(".log"), progress, jar_set)
        for conf in jar_set.confs:
            if not any((staged / conf).glob("*.jar")):
                raise JarsError(f"Ivy found no jars for {conf!r}: read {target.with_suffix('.log')}")
        staged.chmod(0o755)
        staged.rename(target)
    finally:
        shutil.rmtree(staged, ignore_errors=True)


def ivy_command(java: str, declaration: Path, pattern: str, confs: Sequence[str], *options: str) -> list[str]:
    """The command that resolves configurations of a declaration and puts their artifacts where the pattern says."""
    ivy = next(pyspark_jars().glob("ivy-*.jar"))
    command = [java, *SHORT_LIVED, "-jar", str(ivy), *options, "-ivy", str(declaration), "-retrieve", pattern]
    return [*command, "-confs", *confs]


def _run_ivy(java: str, into: Path, log: Path, progress: Progress, jar_set: JarSet) -> None:
    """Shows Ivy's progress as numbers: its own lines name repositories, and go to the log only."""
    pattern = f"{into}/[conf]/[artifact]-[revision](-[classifier]).[ext]"
    command = ivy_command(java, ivy_file(jar_set), pattern, jar_set.confs, "-settings", str(_conf(SETTINGS)))
    found = downloaded = 0
    progress(f"downloading the JVM libraries once ({jar_set.what}); this takes half a minute")
    with (
        log.open("w") as record,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as ivy_process,
    ):
        assert ivy_process.stdout is not None
        for line in ivy_process.stdout:
            record.write(line)
            found += "\tfound " in line
            downloaded += "[SUCCESSFUL" in line
            if ("\tfound " in line and found % 25 == 0) or ("[SUCCESSFUL" in line and downloaded % 10 == 0):
                progress(f"  {found} libraries found, {downloaded} downloaded")
        status = ivy_process.wait(timeout=TIMEOUT_S)
    if status:
        raise JarsError(f"the JVM libraries could not be downloaded: check the network, and read {log}")
    progress(f"  {found} libraries found, {downloaded} downloaded: done")


def _resolved(environ: Mapping[str, str]) -> Path:
    directory = jars_directory(environ)
    if not os.path.isdir(directory):
        raise JarsError(f"the JVM libraries are not in {directory}: {REMEDY}")
    return directory


@contextmanager
def locked(path: Path, progress: Progress, what: str) -> Iterator[None]:
    """Hold the lock at `path`, so that one process at a time does `what`."""
    with path.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress(f"another process {what}; waiting for it")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def say(line: str) -> None:
    """Prints progress to standard error, so that it is not mixed with results."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
