"""Whether an application was started by `spark-submit`, which then decides what it decides on one machine by itself."""

from collections.abc import Mapping


def is_submitted(environ: Mapping[str, str]) -> bool:
    """Whether this process is the driver of an application that `spark-submit` has started: pyspark's own sign."""
    return "PYSPARK_GATEWAY_PORT" in environ
