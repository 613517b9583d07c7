"""Whether `spark-submit` started an application, which then makes the decisions that a local one makes by itself."""

from collections.abc import Mapping


def is_submitted(environ: Mapping[str, str]) -> bool:
    """Whether this process is the driver of an application started by `spark-submit`, by pyspark's own sign."""
    return "PYSPARK_GATEWAY_PORT" in environ
