"""Settings of the cluster that Spark applications are submitted to: `[cluster]`. `conf/base.toml` documents every
key."""

from typing import Annotated, Literal
from urllib.parse import urlsplit

from msgspec import Meta

from schemas.errors import SettingsError
from schemas.sections import Memory, NotEmpty, Positive, Section

LOOPBACK = ("127.0.0.1", "localhost", "::1")


class ApplicationSize(Section, frozen=True, kw_only=True):
    """Resources of one application: the heap of its driver; heap and parallel tasks of each executor."""

    driver_memory: Memory
    executors: Positive
    cores: Positive
    memory: Memory


class ClusterSettings(Section, frozen=True, kw_only=True):
    master: Annotated[
        str,
        Meta(
            pattern=r"^(yarn|spark://.+:\d+|k8s://.+|)\Z",
            description='"spark://host:7077", "yarn" or "k8s://https://host:6443"; empty: no cluster',
        ),
    ]
    deploy_mode: Literal["client", "cluster"]
    driver_host: str
    python: Literal["auto", "installed", "archive", "image"]
    python_command: NotEmpty
    archive: str
    image: str
    namespace: str
    service_account: str
    queue: str
    lease_s: Annotated[float, Meta(ge=6, le=300)]
    spark: dict[str, str]
    router: ApplicationSize
    ledger: ApplicationSize
    batch: ApplicationSize

    @property
    def kind(self) -> str:
        """`standalone`, `yarn` or `kubernetes`; empty without a cluster."""
        scheme = self.master.partition(":")[0]
        return {"spark": "standalone", "yarn": "yarn", "k8s": "kubernetes"}.get(scheme, "")

    @property
    def python_from(self) -> str:
        """Where Python and its packages come from on the cluster: `installed`, `archive` or `image`."""
        usual = {"yarn": "archive", "kubernetes": "image"}
        return usual.get(self.kind, "installed") if self.python == "auto" else self.python

    @property
    def in_pods(self) -> bool:
        """Whether drivers run in pods: these have the image's packages and jars, and no files of this machine."""
        return self.kind == "kubernetes" and self.deploy_mode == "cluster"

    @property
    def is_local(self) -> bool:
        """Whether the master is on this machine."""
        return urlsplit(self.master).hostname in LOOPBACK


def router_slots(ingress_partitions: int, standby: bool, roles: int = 1) -> int:
    """Tasks that a router's process runs permanently: one per ingress partition and query. It has two queries if it has
    both `roles`, or one role with its standby query (`router.standby_query`). With fewer slots, some partition is
    silently not read."""
    queries = 2 if standby or roles > 1 else 1
    return queries * ingress_partitions


def check_cluster(
    cluster: ClusterSettings, ingress_partitions: int, standby: bool, bootstrap: str, tables: str
) -> None:
    """The rules between `[cluster]` and other keys, if there is a cluster. Raises SettingsError."""
    if not cluster.kind:
        return
    _check_mode(cluster)
    _check_python(cluster)
    router, needed = cluster.router, router_slots(ingress_partitions, standby)
    if router.executors * router.cores < needed:
        raise SettingsError(
            f"cluster.router.executors × cluster.router.cores = {router.executors} × {router.cores} tasks are too few: "
            f"each query of a router needs one for each partition of ingress all the time; allowed: at least "
            f"{'2 × ' if standby else ''}kafka.ingress_partitions = {needed}"
            f"{' (router.standby_query: a role has two queries)' if standby else ''}"
        )
    if cluster.is_local:
        return
    brokers = [broker.strip().rpartition(":")[0].strip("[]") for broker in bootstrap.split(",")]
    if any(broker in LOOPBACK for broker in brokers):
        raise SettingsError(
            f"kafka.bootstrap = {bootstrap!r} is an address of this machine only: name one at which the executors of "
            f"{cluster.master} reach the brokers"
        )
    if not (urlsplit(tables).scheme or tables.startswith("/")):
        raise SettingsError(
            f"the tables directory {tables!r} is relative, so each machine of {cluster.master} would have its own: set "
            f"storage.tables to an object store or to a directory that all machines share"
        )


def _check_mode(cluster: ClusterSettings) -> None:
    if cluster.kind == "standalone" and cluster.deploy_mode == "cluster":
        raise SettingsError(
            'cluster.deploy_mode = "cluster" is not allowed with spark://…: Spark\'s own master does not run Python '
            'drivers; set it to "client" and run `waystation submit` on the machine that runs the driver'
        )
    if cluster.driver_host and cluster.deploy_mode == "cluster":
        raise SettingsError('cluster.driver_host applies only to cluster.deploy_mode = "client": leave it empty')
    of_kubernetes = ("image", "service_account")
    if given := [key for key in of_kubernetes if getattr(cluster, key) and cluster.kind != "kubernetes"]:
        raise SettingsError(
            f"cluster.{given[0]} applies only to k8s://…, but cluster.master = {cluster.master!r}: leave it empty"
        )
    if cluster.queue and cluster.kind != "yarn":
        raise SettingsError(
            f"cluster.queue applies only to yarn, but cluster.master = {cluster.master!r}: leave it empty"
        )


def _check_python(cluster: ClusterSettings) -> None:
    if cluster.kind == "kubernetes" and not cluster.image:
        raise SettingsError(
            "cluster.image is empty: name the image of drivers and executors, built from "
            "conf/kubernetes/Dockerfile.spark"
        )
    if cluster.kind == "kubernetes" and cluster.python_from != "image":
        raise SettingsError(
            f'cluster.python = "{cluster.python}" is not allowed with k8s://…: set it to "image" or "auto"'
        )
    if cluster.kind != "kubernetes" and cluster.python_from == "image":
        raise SettingsError('cluster.python = "image" is allowed only with k8s://…: use "installed" or "archive"')
    if cluster.python_from == "archive" and not cluster.archive:
        raise SettingsError(
            "cluster.archive is empty: name a packed environment that contains Waystation and its packages; "
            "docs/clusters.md explains how to make one with venv-pack"
        )
    if cluster.archive and cluster.python_from != "archive":
        raise SettingsError(
            f'cluster.archive applies only to cluster.python = "archive", but it is "{cluster.python_from}": leave it '
            f"empty"
        )
