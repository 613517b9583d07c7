"""Who sent a message, for Spark: the column `origin`."""

from pyspark.sql import Column
from pyspark.sql import functions as F

from schemas.origin import CLUSTER_ROOT, HTTP_FLAG, PLATFORM_FLAG, PRESENCE_ROOT, WILL_FLAG


def origin_of(topic: Column, flags: Column) -> Column:
    """The same as :func:`schemas.origin.origin_of`. A test checks that they agree."""
    is_own = topic.startswith(f"{PRESENCE_ROOT}/") | topic.startswith(f"{CLUSTER_ROOT}/")
    return (
        F.when(is_own | flags.contains(PLATFORM_FLAG), "platform")
        .when(flags.contains(WILL_FLAG), "will")
        .when(flags.contains(HTTP_FLAG), "http")
        .otherwise("client")
    )
