"""Metrics of a Spark driver's JVM: heap and garbage collection from the JVM itself, CPU time and memory from the
operating system."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import psutil
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from pyspark.sql import SparkSession

SAMPLE_S = 5.0
"""How often the JVM is sampled, which takes a millisecond. The application's own thread does it: a thread created for
each scrape would need a new connection to the JVM each time."""


class Sample(NamedTuple):
    """`heap_max` is -1 if the heap has no limit; `collections` by collector: how many, and ms spent."""

    heap_used: int
    heap_committed: int
    heap_max: int
    collections: dict[str, tuple[int, int]]


class Jvm(Collector):
    """The last values of :meth:`sample`, and at each scrape those of the operating system."""

    def __init__(self) -> None:
        self._beans: tuple[Any, list[tuple[str, Any]]] | None = None
        self._process: psutil.Process | None = None
        self._sample: Sample | None = None
        self._due = 0.0

    def attach(self, spark: SparkSession) -> None:
        """Monitor the JVM of this session from now on."""
        lang: Any = spark.sparkContext._jvm.java.lang  # type: ignore[union-attr]
        management = lang.management.ManagementFactory
        collectors = management.getGarbageCollectorMXBeans()
        self._beans = management.getMemoryMXBean(), [(str(one.getName()), one) for one in collectors]
        self._process = psutil.Process(int(lang.ProcessHandle.current().pid()))

    def sample(self, now: float) -> None:
        """Sample the JVM if due; `now` on any monotonic clock."""
        if self._beans is None or now < self._due:
            return
        self._due = now + SAMPLE_S
        memory, collectors = self._beans
        heap = memory.getHeapMemoryUsage()
        collections = {name: (one.getCollectionCount(), one.getCollectionTime()) for name, one in collectors}
        self._sample = Sample(heap.getUsed(), heap.getCommitted(), heap.getMax(), collections)

    def collect(self) -> Iterator[Metric]:
        if self._sample is not None:
            yield from _families(self._sample)
        if self._process is not None:
            try:
                with self._process.oneshot():
                    cpu, resident = self._process.cpu_times(), self._process.memory_info().rss
            except psutil.Error:
                return  # it has ended
            yield CounterMetricFamily(
                "waystation_jvm_cpu_seconds", "CPU time of the JVM, in seconds", value=cpu.user + cpu.system
            )
            yield GaugeMetricFamily("waystation_jvm_resident_memory_bytes", "Resident memory of the JVM", resident)


def _families(sample: Sample) -> Iterator[Metric]:
    yield GaugeMetricFamily("waystation_jvm_heap_used_bytes", "Heap in use, including garbage", sample.heap_used)
    yield GaugeMetricFamily(
        "waystation_jvm_heap_committed_bytes", "Heap reserved from the operating system", sample.heap_committed
    )
    if sample.heap_max > 0:
        yield GaugeMetricFamily("waystation_jvm_heap_max_bytes", "Maximum size of the heap", sample.heap_max)
    counts = CounterMetricFamily("waystation_jvm_gc_collections", "Garbage collections", labels=["collector"])
    spent = CounterMetricFamily("waystation_jvm_gc_seconds", "Time spent in garbage collections", labels=["collector"])
    for collector, (count, spent_ms) in sample.collections.items():
        counts.add_metric([collector], count)
        spent.add_metric([collector], spent_ms / 1000)
    yield counts
    yield spent
