"""The applications that run on a cluster, each a module of :mod:`jobs` with a `main` of its own."""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import NamedTuple

from jobs.errors import SubmissionError
from schemas.cluster_settings import ApplicationSize
from schemas.settings import Settings

ROLES = ("active", "backup")


class Application(NamedTuple):
    """`size` names the table of `[cluster]` with its resources."""

    name: str
    module: str
    size: str
    arguments: tuple[str, ...] = ()

    def size_of(self, settings: Settings) -> ApplicationSize:
        size: ApplicationSize = getattr(settings.cluster, self.size)
        return size

    def java_options(self, settings: Settings) -> str:
        """Options of the JVMs that do its work: those measured on one machine suit executors too."""
        return settings.stack.router_java_options if self.size == "router" else settings.stack.ledger_java_options

    def spark_settings(self) -> Mapping[str, str]:
        """Its session's settings on a cluster, in addition to its own."""
        # A task for each partition starts at once, on any free slot: waiting for a local one would be a pause.
        return {"spark.locality.wait": "0s"} if self.size == "router" else {}


BATCH = ("maintain", "quality", "audit")
NAMES = ("router", "ledger", *BATCH)


def applications(name: str, role: str | None, arguments: tuple[str, ...] = ()) -> list[Application]:
    """The applications submitted under `name`: one, or for a router without `role` the pair; each gets `arguments`.

    Raises SubmissionError if there is no such application.
    """
    if name not in NAMES:
        close = get_close_matches(name, NAMES, 1)
        meant = f". Did you mean {close[0]}?" if close else ""
        raise SubmissionError(f"unknown application {name!r}: choose from {', '.join(NAMES)}{meant}")
    if role is not None and name != "router":
        raise SubmissionError(f"--role is only for routers: omit it for {name}")
    if role is not None and role not in ROLES:
        raise SubmissionError(f"unknown --role {role}: choose from {', '.join(ROLES)}")
    if name == "router":
        roles = ROLES if role is None else (role,)
        return [Application(f"router-{r}", "jobs.router", "router", ("--role", r, *arguments)) for r in roles]
    return [Application(name, f"jobs.{name}", "batch" if name in BATCH else name, arguments)]
