"""Logging of every Waystation process: structlog to standard error, as text or JSON (`[log]`)."""

import logging
import sys

import structlog

from schemas.settings import LogSettings


def configure_logging(settings: LogSettings) -> None:
    """One line an event, times in UTC, nothing below the configured level."""
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if settings.format == "json"
        else structlog.dev.ConsoleRenderer(colors=False)
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, settings.level.upper())),
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
    )
