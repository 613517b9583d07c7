"""Logging of every Waystation process: structlog to standard error, as text or JSON (`[log]`).

What libraries log through the standard library takes the same form, but only from warnings up: below that, some of them
log what they carry, including payloads and passwords.
"""

import logging
import sys

import structlog

from schemas.settings import LogSettings


def configure_logging(settings: LogSettings) -> None:
    """One line per event, times in UTC, nothing below the configured level."""
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
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
    )
    foreign = logging.StreamHandler(sys.stderr)
    foreign.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*common, structlog.stdlib.add_logger_name],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    logging.basicConfig(handlers=[foreign], level=max(level, logging.WARNING), force=True)
