"""Logging of every Waystation process: structlog to standard error, as text or JSON (`[log]`).

What libraries log through the standard library takes the same form, but only from warnings up: below that, some of them
log what they carry, including payloads and passwords.
"""

import logging
import sys
from contextlib import suppress
from typing import TextIO, cast

import structlog

from schemas.settings import LogSettings


class _Lossy:
    """A file that loses what cannot be written: the disk is full, or nobody reads any more. What logs must go on: it
    may be handling that very error. A buffered file, as standard error is one, writes some of it later."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, text: str) -> None:
        with suppress(OSError):
            self._file.write(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._file.flush()


def configure_logging(settings: LogSettings) -> None:
    """One line per event, times in UTC, nothing below the configured level. Lines that cannot be written are lost."""
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if settings.format == "json"
        else structlog.dev.ConsoleRenderer(colors=False)
    )
    common: list[structlog.typing.Processor] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    level = getattr(logging, settings.level.upper())
    structlog.configure(
        processors=[*common, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(cast(TextIO, _Lossy(sys.stderr))),
    )
    foreign = logging.StreamHandler(sys.stderr)
    foreign.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*common, structlog.stdlib.add_logger_name],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    logging.basicConfig(handlers=[foreign], level=max(level, logging.WARNING), force=True)
