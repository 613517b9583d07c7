"""Stopping a query in mid-batch, which is routine for a router, without the errors that Spark logs of it.

A batch of a router does not end before its time, so a stop cancels its tasks. Each of them, and the write as a whole,
then logs as an error that it was aborted, with a stack trace: 90 lines, by three loggers. These are silent from the
stop until the tasks have ended. No failure is hidden: a query that fails has its exception, which is logged as `router
failed`, and the loggers of tasks, stages and jobs go on.
"""

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

ABORTS = (
    "org.apache.spark.util.Utils",
    "org.apache.spark.sql.execution.datasources.v2.DataWritingSparkTask",
    "org.apache.spark.sql.execution.datasources.v2.WriteToDataSourceV2Exec",
)
LONGEST_S = 5.0
"""Longer than tasks take to end once they are cancelled."""
LEVEL = "ERROR"
"""Of the session (:mod:`jobs.runtime.spark_session`)."""


class QuietStop:
    """Stops queries of one session; :meth:`look` is called now and then."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._run: str | None = None
        self._until = 0.0

    def stop(self, query: StreamingQuery, now: float) -> None:
        self._run, self._until = query.runId, now + LONGEST_S
        self._set_level("OFF")
        query.stop()

    def look(self, now: float) -> None:
        """Lets the loggers speak again once the tasks of the query have ended, or have had long enough."""
        if self._run is not None and (now >= self._until or not running_tasks(self._spark, self._run)):
            self._run = None
            self._set_level(LEVEL)

    def _set_level(self, level: str) -> None:
        log4j = self._spark._jvm.org.apache.logging.log4j  # type: ignore[union-attr]
        for logger in ABORTS:
            log4j.core.config.Configurator.setLevel(logger, log4j.Level.toLevel(level))


def running_tasks(spark: SparkSession, run_id: str) -> int:
    """How many tasks of a query's run are at work: of the stage that has the most."""
    tracker = spark.sparkContext.statusTracker()
    jobs = map(tracker.getJobInfo, tracker.getJobIdsForGroup(run_id))
    stages = (tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds)
    return max((stage.numActiveTasks for stage in stages if stage is not None), default=0)
