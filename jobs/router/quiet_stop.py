"""Stops a query in mid-batch, which is routine for a router, without the errors that Spark logs about it.

A router's batch does not end early, so a stop cancels its tasks. Each task, and the write as a whole, then logs as an
error that it was aborted, with a stack trace: 90 lines, by three loggers. These are silenced from the stop until the
tasks have ended. No failure is hidden: the exception of a failing query is logged as `router failed`, and the loggers
of tasks, stages and jobs go on.
"""

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

ABORTS = (
    "org.apache.spark.util.Utils",
    "org.apache.spark.sql.execution.datasources.v2.DataWritingSparkTask",
    "org.apache.spark.sql.execution.datasources.v2.WriteToDataSourceV2Exec",
)
LONGEST_S = 5.0
"""Longer than cancelled tasks take to end."""
LEVEL = "ERROR"
"""The session's log level (:mod:`jobs.runtime.spark_session`)."""


class QuietStop:
    """Stops queries of one session; :meth:`look` is called regularly."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._run: str | None = None
        self._until = 0.0

    def stop(self, query: StreamingQuery, now: float) -> None:
        self._run, self._until = query.runId, now + LONGEST_S
        self._set_level("OFF")
        query.stop()

    def look(self, now: float) -> None:
        """Restores the loggers once the tasks of the query have ended, or after LONGEST_S."""
        if self._run is not None and (now >= self._until or not running_tasks(self._spark, self._run)):
            self._run = None
            self._set_level(LEVEL)

    def _set_level(self, level: str) -> None:
        log4j = self._spark._jvm.org.apache.logging.log4j  # type: ignore[union-attr]
        for logger in ABORTS:
            log4j.core.config.Configurator.setLevel(logger, log4j.Level.toLevel(level))


def running_tasks(spark: SparkSession, run_id: str) -> int:
    """How many tasks of a query's run are running, in the stage that has the most."""
    tracker = spark.sparkContext.statusTracker()
    jobs = map(tracker.getJobInfo, tracker.getJobIdsForGroup(run_id))
    stages = (tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds)
    return max((stage.numActiveTasks for stage in stages if stage is not None), default=0)
