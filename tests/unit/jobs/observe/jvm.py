"""A Spark session of which there is only what tells of its JVM."""

import os
from types import SimpleNamespace
from typing import Any


class FakeJvm:
    """A session whose JVM is this process. Counts how often its heap is asked for."""

    def __init__(self) -> None:
        self.asked = 0
        collector = SimpleNamespace(getName=lambda: "Copy", getCollectionCount=lambda: 7, getCollectionTime=lambda: 250)
        factory = SimpleNamespace(
            getMemoryMXBean=lambda: SimpleNamespace(getHeapMemoryUsage=self._heap),
            getGarbageCollectorMXBeans=lambda: [collector],
        )
        handle = SimpleNamespace(current=lambda: SimpleNamespace(pid=os.getpid))
        lang = SimpleNamespace(management=SimpleNamespace(ManagementFactory=factory), ProcessHandle=handle)
        jvm = SimpleNamespace(java=SimpleNamespace(lang=lang))
        self.session: Any = SimpleNamespace(sparkContext=SimpleNamespace(_jvm=jvm))

    def _heap(self) -> Any:
        self.asked += 1
        return SimpleNamespace(getUsed=lambda: 10, getCommitted=lambda: 20, getMax=lambda: 30)
