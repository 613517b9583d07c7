"""The words of redundant feeds that records, answers over HTTP and options have in common (S1, S3)."""

from typing import Final, Literal

Slot = Literal["active", "backup"]
"""Where an adapter writes: the first or the second half of the partitions of `feed.<name>`. It never changes while the
adapter runs. Which of the two subscribers are told to prefer is the assignment."""

AdapterState = Literal["waiting", "refused", "up", "source_lost", "ended", "gone"]
"""`waiting`: another adapter has its slot; `refused`: it cannot be the other's pair; `up`: follows the source;
`source_lost`: tries to reach it; `ended`: the source has ended; `gone`: stopped in order."""

HOLDING: Final = ("up", "source_lost", "ended")
"""The states in which an adapter that is alive has its slot."""

SubscriberMode = Literal["warm", "cold"]
"""`warm`: reads both streams; `cold`: the active one, and the other when that fails."""
