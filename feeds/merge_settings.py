"""How the merger waits, what it may hold, and what it does with what comes too late (S3)."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MergeSettings:
    """`reorder_ms` counts from when a message beyond the gap came, and `deadline_ms` from `reorder_ms` before the gap
    was suspected: the same moment, unless the timer was late."""

    reorder_ms: float = 25  # so long a missing number may be merely out of order
    deadline_ms: float = 5_000  # then it is lost, whatever is still asked for
    recovers: bool = True  # whether the caller can read ranges from a feed's log
    delivers_late: bool = True  # what comes after it was reported lost is delivered, marked; or only counted
    streams: int = 10_000  # source streams, epochs of one counted singly; more are refused
    held_messages: int = 10_000  # of a source stream, behind a gap; more end the gap as its deadline does
    held_bytes: int = 67_108_864  # held by all source streams together, overhead included; more end gaps likewise
    gaps: int = 1_000  # of a source stream at once; more end the first
    lost_ranges: int = 1_000  # of a source stream, remembered to know late copies; the oldest are forgotten first
    compared: int = 1_024  # copies of a source stream that wait for their second, to compare payloads
    administrative: int = 1_024  # administrative messages of a source stream that are remembered, or held

    def __post_init__(self) -> None:
        if not 0 <= self.reorder_ms <= self.deadline_ms:
            raise ValueError(f"the deadline ({self.deadline_ms} ms) must not be before the reorder time")
        for name in ("streams", "held_messages", "held_bytes", "gaps", "lost_ranges", "compared", "administrative"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
