"""A checkpoint that is moved on behind records that are lost."""

import json

from pipelines.kafka.positions import ReadTopic, lost
from pipelines.storage.checkpoints import Checkpoint


class SkippingCheckpoint(Checkpoint):
    """The checkpoint of a query in Real-Time Mode, which cannot skip by itself: whatever `failOnDataLoss` says, it asks
    for the next offset, fails as that is out of range, and does so again whenever it is started."""

    def skip(self, topic: ReadTopic) -> None:
        """Have the query go on at the oldest records that `topic` has, where it would ask for older ones.

        While the query is stopped. Written is what Spark reads when it starts: where its last batch ended. A crash
        leaves each file as it was or as it is to be.
        """
        finished = self._batches("commits")
        begun = [batch for batch in self._batches("offsets") if finished and batch >= max(finished)]
        for batch in begun:
            if lost(topic, self.reached(batch).get(topic.name, {})):
                lines = self._read(f"offsets/{batch}").splitlines()
                lines[2:] = [_behind(topic, line) for line in lines[2:]]
                self.write(f"offsets/{batch}", "\n".join(lines).encode())


def _behind(topic: ReadTopic, line: str) -> str:
    """A source's offsets, none of `topic` before the oldest record there is."""
    ends = json.loads(line)
    reached = ends.get(topic.name, {})
    moved = {partition: max(offset, topic.begins.get(int(partition), 0)) for partition, offset in reached.items()}
    return json.dumps(ends | {topic.name: moved})
