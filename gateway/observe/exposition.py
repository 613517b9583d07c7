"""Figures of a process as the text that Prometheus reads."""

from collections.abc import Iterable, Iterator

from prometheus_client import GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector, CollectorRegistry


class Exposition:
    """Formats figures as Prometheus text, with those of the process: CPU, memory, open files, garbage collection."""

    def __init__(self) -> None:
        aside = CollectorRegistry()
        self._process: list[Collector] = [ProcessCollector(registry=aside), PlatformCollector(registry=aside)]
        self._process.append(GCCollector(registry=aside))

    def render(self, families: list[Metric], accept: str) -> tuple[bytes, str]:
        """The text and its content type, as `accept` requests. Takes milliseconds: do not call it on the event loop."""
        encode, content_type = choose_encoder(accept)
        return encode(_Gathered(families, self._process)), content_type


class _Gathered(Collector):
    def __init__(self, families: list[Metric], process: Iterable[Collector]) -> None:
        self._families = families
        self._process = process

    def collect(self) -> Iterator[Metric]:
        yield from self._families
        for collector in self._process:
            yield from collector.collect()
