"""Moves a checkpoint past records that are lost."""

import json

from pipelines.kafka.positions import ReadTopic, lost
from pipelines.storage.checkpoints import Checkpoint


class SkippingCheckpoint(Checkpoint):
    """The checkpoint of a query in Real-Time Mode, which cannot skip by itself: whatever `failOnDataLoss` says, it asks
    for the next offset, fails because that is out of range, and fails again at every start."""

    def skip(self, topic: ReadTopic) -> None:
        """Make the query resume at the oldest records of `topic` where it would ask for older ones.

        Call it only while the query is stopped. It rewrites what Spark reads at its start: where the last batch ended.
        A crash leaves each file in its old or its new state.
        """
        finished = self._batches("commits")
        begun = [batch for batch in self._batches("offsets") if finished and batch >= max(finished)]
        for batch in begun:
            if lost(topic, self.reached(batch).get(topic.name, {})):
                lines = self._read(f"offsets/{batch}").splitlines()
                lines[2:] = [_behind(topic, line) for line in lines[2:]]
                self.write(f"offsets/{batch}", "\n".join(lines).encode())


def _behind(topic: ReadTopic, line: str) -> str:
    """A source's offsets, with those of `topic` moved up to the oldest existing record."""
    ends = json.loads(line)
    reached = ends.get(topic.name, {})
    moved = {partition: max(offset, topic.begins.get(int(partition), 0)) for partition, offset in reached.items()}
    return json.dumps(ends | {topic.name: moved})
