"""The rules between the keys of an adapter's settings. Pure."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from edge.client.connect_points import parse_connect_points
from edge.feeds.adapter.address import parse_address, parse_request_server
from edge.feeds.adapter.own_source import MAPPED, feed_source
from edge.feeds.adapter.parsing import parser_maker
from edge.feeds.errors import FrameError
from edge.feeds.formats.miniseed_header import RECORD_BYTES_MIN
from edge.feeds.source import stream_id
from feeds.errors import FeedError

if TYPE_CHECKING:
    from edge.feeds.adapter.settings import AdapterSettings, SourceSection

BEATS_PER_TIMEOUT = 2
"""Beats that must fit into `feed.timeout_s`, so that one that is late does not count as death."""
BEAT_S = 0.2
"""An adapter writes five beats a second."""


def broken_rules(settings: "AdapterSettings") -> Iterator[str]:
    yield from _broken_in_source(settings)
    feed, kafka, limits = settings.feed, settings.kafka, settings.limits
    if feed.timeout_s < BEATS_PER_TIMEOUT * BEAT_S:
        yield f"feed.timeout_s = {feed.timeout_s:g} is too short: beats come every {BEAT_S:g} s, so at least 0.4"
    try:
        parse_connect_points([f"kafka://{kafka.bootstrap}"])
    except ValueError as error:
        yield f"kafka.bootstrap: {error}"
    for name in ("password_file", "username"):
        if getattr(kafka, name) and not kafka.sasl_mechanism:
            yield f"kafka.{name} needs kafka.sasl_mechanism"
    if limits.message_bytes > min(limits.batch_bytes, limits.buffer_bytes):
        yield "limits.message_bytes must be at most limits.batch_bytes and limits.buffer_bytes"
    if limits.batch_messages > limits.buffer_messages or limits.batch_bytes > limits.buffer_bytes:
        yield "limits.batch_messages and limits.batch_bytes must be at most those of the buffer"
    if limits.request_ms > limits.request_within_ms:
        yield "limits.request_ms must not be above limits.request_within_ms"


def _broken_in_source(settings: "AdapterSettings") -> Iterator[str]:
    source = settings.source
    is_mold = source.format == "moldudp64"
    try:
        address = parse_address(source.address)
    except ValueError as error:
        yield f"source.from: {error}"
        return
    if is_mold is not (address.kind == "udp") and is_mold:
        yield "source.from: MoldUDP64 comes in datagrams: write udp://HOST:PORT"
    if source.follow and address.kind != "file":
        yield "source.follow is for files: remove it"
    if source.rotate_wait_s and not source.follow:
        yield "source.rotate_wait_s is for files that are followed: set source.follow, or remove it"
    if source.pace and address.kind != "file":
        yield "source.pace is for files: remove it"
    if source.request:
        if not is_mold:
            yield "source.request is for MoldUDP64: remove it"
        try:
            parse_request_server(source.request)
        except ValueError as error:
            yield f"source.request: {error}"
    if source.format == "csv" and address.kind != "file" and not source.csv.columns:
        yield "source.csv.columns is needed: whoever begins in the middle of a source sees no header line"
    size = source.miniseed.record_bytes
    if size and not RECORD_BYTES_MIN <= size <= settings.limits.message_bytes:
        yield f"source.miniseed.record_bytes is {RECORD_BYTES_MIN} to limits.message_bytes, not {size}"
    yield from _broken_in_mapping(source)
    try:
        stream_id(source.name, None, source.epoch)
    except FrameError as error:
        yield f"source.name: {error}"
        return
    try:
        feed_source(source, settings.limits.streams)
        if not is_mold:
            parser_maker(settings)
    except FeedError as error:
        yield f"source: {error}"


def _broken_in_mapping(source: "SourceSection") -> Iterator[str]:
    mapping = source.mapping
    if source.format not in MAPPED and mapping != type(mapping)():
        yield "source.mapping is for CSV and JSON: remove it"
    if mapping.counter_first and not mapping.counter_last:
        yield f"source.mapping.counter_first = {mapping.counter_first} needs source.mapping.counter_last"
