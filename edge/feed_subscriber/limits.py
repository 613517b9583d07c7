"""Times and limits of a subscriber; docs/feeds.md explains each (S3)."""

from dataclasses import dataclass, field, fields

from feeds.merge_settings import MergeSettings


@dataclass(frozen=True, slots=True)
class FeedLimits:
    """Raises ValueError if a value is not positive. `merge` are the merger's own."""

    merge: MergeSettings = field(default_factory=MergeSettings)
    items: int = 10_000  # that wait for the application; then reading stops until it has taken half
    uncommitted: int = 100_000  # items that were given and are not committed; then no more are given
    commit_ms: float = 100  # between writes of the state, if the application does not wait for them
    begin_ms: float = 250  # so long a source stream that is new waits for a lower number of the other feed
    epoch_s: float = 10  # so long an epoch is kept after both feeds have left it
    adapter_timeout_s: float = 0.6  # an adapter without a beat for so long is dead; as `feeds.timeout_s`
    adapters: int = 1_000  # that are remembered, of all feeds
    connect_timeout_s: float = 30  # for the first connection
    take_up_ms: int = 500  # by how much earlier another slot's log is read than the last record of this one's
    search_records: int = 200_000  # that one search in a log reads at most
    search_again_ms: float = 50  # between searches for what is still missing

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            if one.name != "merge" and value <= 0:
                raise ValueError(f"FeedLimits.{one.name} must be above 0, not {value}")
