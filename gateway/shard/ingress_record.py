"""A record of `ingress`. Pure."""

from gateway.record import Record
from schemas.identity import candidate_keys


class IngressRecord:
    """A record of `ingress` with what is derived from its topic once, for all shards. `topic` is None if it is not
    UTF-8."""

    __slots__ = ("_keys", "record", "topic")

    def __init__(self, record: Record) -> None:
        self.record = record
        self._keys: list[str] | None = None
        try:
            self.topic: str | None = (record.key() or b"").decode()
        except UnicodeDecodeError:
            self.topic = None

    @property
    def keys(self) -> list[str]:
        """The route keys by which routers may route it."""
        if self._keys is None:
            self._keys = candidate_keys(self.topic or "")
        return self._keys
