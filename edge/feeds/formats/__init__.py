"""Parsers of source formats, one a file: bytes come in, messages and reports of malformed input go out.

A parser of a byte stream has `feed(data)` and `end()`: incomplete input waits, and after malformed input it goes on at
the next frame. One of datagrams has `datagram(data)`.
May import: `edge.feeds.source`, `edge.feeds.unwrap`, `edge.feeds.errors`, msgspec; no sockets, loop, clock, disk.
"""
