"""The source that an adapter's settings name (S2)."""

from pathlib import Path
from typing import Protocol

from edge.feeds.adapter.address import parse_request_server
from edge.feeds.adapter.mold_order import MoldLimits
from edge.feeds.adapter.parsing import parser_maker
from edge.feeds.adapter.resume import FilePlace
from edge.feeds.adapter.settings import AdapterSettings
from edge.feeds.adapter.sources.file import FileSource
from edge.feeds.adapter.sources.intake import Intake
from edge.feeds.adapter.sources.mold import MoldSource
from edge.feeds.adapter.sources.pace import Pace
from edge.feeds.adapter.sources.stream import PipeSource, TcpListenSource, TcpSource
from edge.feeds.adapter.sources.udp import ParsedDatagrams, UdpSource
from edge.reconnect import FullJitter

STANDARD_INPUT = 0


class Source(Protocol):
    """See :mod:`edge.feeds.adapter.sources`."""

    async def run(self) -> None: ...


def make_source(settings: AdapterSettings, intake: Intake, place: FilePlace | None) -> Source:
    """The source; `place`: where an earlier run stopped in a file."""
    source, limits, address = settings.source, settings.limits, settings.address
    if source.format == "moldudp64":
        server = parse_request_server(source.request) if source.request else None
        return MoldSource(source.name, address, server, mold_limits(settings), limits.receive_buffer_bytes, intake)
    make = parser_maker(settings)
    match address.kind:
        case "file":
            return FileSource(
                Path(address.path),
                make,
                intake,
                place,
                follows=source.follow,
                reads_head=source.format == "csv" and not source.csv.columns,
                pace=Pace(source.pace) if source.pace else None,
                rotate_wait_s=source.rotate_wait_s,
            )
        case "pipe":
            return PipeSource(STANDARD_INPUT, make, intake)
        case "tcp":
            backoff = FullJitter(0.2, limits.reconnect_most_s)
            return TcpSource(address.host, address.port, make, intake, backoff, limits.unanswered_s)
        case "tcp-listen":
            return TcpListenSource(address.host, address.port, make, intake, limits.unanswered_s)
    reader = ParsedDatagrams(make, intake, has_lines=source.format != "miniseed")
    return UdpSource(address, limits.receive_buffer_bytes, reader, intake)


def mold_limits(settings: AdapterSettings) -> MoldLimits:
    """Those of MoldUDP64."""
    limits = settings.limits
    return MoldLimits(
        reorder_ms=limits.reorder_ms,
        reorder_messages=limits.reorder_messages,
        has_server=bool(settings.source.request),
        request_ms=limits.request_ms,
        within_ms=limits.request_within_ms,
        requests_per_s=limits.requests_per_s,
        request_messages=limits.request_messages,
    )
