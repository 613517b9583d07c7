"""Which bundles were the last of their sources to set retained messages: older copies may come late (M14). Pure."""

from collections import OrderedDict
from typing import NamedTuple

from gateway.record import Record
from schemas.envelope import INGRESS_HEADERS, BundleMark, Meta
from schemas.errors import RecordError


class BundleSource(NamedTuple):
    """Bundles whose sequences ascend, as far as they set the retained message of one topic."""

    topic: str
    source: str
    incarnation: int


class NewestBundles:
    """The highest sequence of each source. Up to `most` sources are remembered; the one unused for longest is forgotten
    first. What this gateway is writing counts too: its bundles come in any order, also within one request."""

    def __init__(self, most: int) -> None:
        self._most = max(1, most)
        self._newest: OrderedDict[BundleSource, int] = OrderedDict()
        self._on_way: dict[BundleSource, dict[int, int]] = {}  # sequences, by number of the write
        self._writes: dict[int, BundleSource] = {}

    def has_newer(self, topic: str, source: str, bundle: BundleMark) -> bool:
        """Whether this bundle of a sender, or a later one, was taken for the topic, or is on its way."""
        of = BundleSource(topic, source, bundle.incarnation)
        on_way = self._on_way.get(of, {}).values()
        return max((self._newest.get(of, 0), *on_way)) >= bundle.sequence

    def writing(self, number: int, topic: str, source: str, bundle: BundleMark) -> None:
        """This gateway writes a record, its write `number`, for a bundle that has no newer one."""
        of = self._writes[number] = BundleSource(topic, source, bundle.incarnation)
        self._on_way.setdefault(of, {})[number] = bundle.sequence

    def written(self, number: int) -> None:
        """A write has ended: its record was taken, or was refused."""
        of = self._writes.pop(number, None)
        if of is None:
            return
        del self._on_way[of][number]
        if not self._on_way[of]:
            del self._on_way[of]

    def take(self, topic: str, record: Record) -> str | None:
        """Takes a record of a topic, if it came in a bundle. Returns its source if a newer one was taken before."""
        source, bundle = _bundle_of(record)
        if bundle is None:
            return None
        of = BundleSource(topic, source, bundle.incarnation)
        if self._newest.get(of, 0) >= bundle.sequence:
            return source
        self._newest[of] = bundle.sequence
        self._newest.move_to_end(of)
        if len(self._newest) > self._most:
            self._newest.popitem(last=False)
        return None


def _bundle_of(record: Record) -> tuple[str, BundleMark | None]:
    """The sender of a record, and in which of its bundles it came; None if in none, or if the record is malformed."""
    headers = record.headers()
    if not headers or len(headers) < len(INGRESS_HEADERS):
        return "", None
    try:
        return headers[1][1].decode(), Meta.decode(headers[2][1]).bundle
    except (RecordError, AttributeError, UnicodeDecodeError):
        return "", None
