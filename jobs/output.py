"""Output of commands and jobs: one console for all, which prints data literally.

Clients choose names, topics and payloads. So nothing printed here is parsed as Rich markup, emoji or highlighting, and
characters that control a terminal, change text direction or are invisible are escaped. :mod:`jobs.text_tables` lays out
tables.
"""

import errno
import json
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any

from rich.console import Console
from rich.text import Text

from jobs.text_tables import Column, Form, lay_out
from schemas.visible import visible as visible

PIPE_WIDTH = 400
"""Columns of an output that is not a terminal."""
BROKEN_PIPE = 128 + 13
"""Exit status of a program whose reader is gone: what a shell reports for one that SIGPIPE ended."""


def cell(value: Any) -> str:
    """A value for a table, on one line: nothing for None and False, `yes` for True."""
    if value is None or value is False:
        return ""
    return "yes" if value is True else visible(str(value))


class Terminal(Console):
    """A console that does not parse markup and escapes what is not printable; line breaks are kept."""

    def __init__(self, *, stderr: bool = False) -> None:
        stream = sys.stderr if stderr else sys.stdout
        width = None if stream.isatty() or os.environ.get("COLUMNS") else PIPE_WIDTH
        super().__init__(stderr=stderr, markup=False, emoji=False, highlight=False, soft_wrap=True, width=width)

    def render_str(self, text: str, **options: Any) -> Text:
        shown = "\n".join(visible(line) for line in text.split("\n"))
        return super().render_str(shown, **{**options, "markup": False, "emoji": False, "highlight": False})

    def on_broken_pipe(self) -> None:
        self.quiet = True
        raise BrokenPipeError(errno.EPIPE, "the reader of the output has closed it")

    def show_table(
        self,
        columns: Sequence[Column | str],
        rows: Sequence[Sequence[str]],
        *,
        title: str = "",
        form: Form = Form.VERTICAL_IF_WIDE,
    ) -> None:
        """Print rows of cells as a table, in the given `form` if it is wider than the terminal; nothing is ever cut. A
        cell is one line: a line break in it is shown as `\\n`."""
        if title:
            self.print(visible(title), style="italic")
        known = [one if isinstance(one, Column) else Column(one) for one in columns]
        known = [one._replace(heading=visible(one.heading)) for one in known]
        rows = [[visible(text) for text in row] for row in rows]
        file = self.file
        for line, is_heading in lay_out(known, rows, self.width, form):
            if is_heading:
                self.print(line, style="bold")
            else:
                file.write(f"{line}\n")
        file.write("\n" if title else "")

    def show_facts(self, facts: Mapping[str, Any], *, title: str = "") -> None:
        """Print names and values, one per line."""
        if title:
            self.print(visible(title), style="italic")
        width = max(map(len, facts), default=0)
        for name, value in facts.items():
            self.file.write(f"{visible(name):<{width}}  {cell(value)}".rstrip(" ") + "\n")
        self.file.write("\n" if title else "")


def output() -> Terminal:
    """The console for results."""
    return Terminal()


def errors() -> Terminal:
    """The console for errors, and for progress that must not be mixed with results."""
    return Terminal(stderr=True)


def json_text(value: Any, *, indent: int | None = 2) -> str:
    """Valid JSON (RFC 8259): NaN and infinities, for which JSON has no number, are null; see :func:`plain` for
    others."""
    return json.dumps(_finite(value), indent=indent, default=plain, allow_nan=False) + "\n"


def plain(value: Any) -> Any:
    """A value as text where JSON has no type for it: times as ISO 8601 in UTC, bytes as :func:`bytes_text`."""
    if isinstance(value, datetime):
        if not value.tzinfo:
            return value.isoformat()
        return value.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    return bytes_text(value) if isinstance(value, bytes) else str(value)


def bytes_text(value: bytes) -> str:
    """Bytes as text that DuckDB's cast to BLOB turns back into the same bytes: printable ASCII except the backslash is
    unchanged, all other bytes are `\\xNN`."""
    return "".join(chr(b) if 0x20 <= b < 0x7F and b != 0x5C else f"\\x{b:02X}" for b in value)


def _finite(value: Any) -> Any:
    match value:
        case float():
            return value if math.isfinite(value) else None
        case Mapping():
            return {name: _finite(one) for name, one in value.items()}
        case list() | tuple():
            return [_finite(one) for one in value]
    return value


def ends_quietly(run: Callable[[], int]) -> int:
    """The exit status of `run`, with all output written. If nobody reads it any more: `BROKEN_PIPE`, without a message.

    Code that prints may raise BrokenPipeError, or the exception that ends the program because of it (Typer:
    SystemExit).
    """
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115 - `>&-` has closed it
    try:
        status = run()
        sys.stdout.flush()
        return status
    except SystemExit as ended:
        status = int(ended.code or 0)
        if not _is_of_broken_pipe(ended):
            return ends_quietly(lambda: status)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            _silence()
            errors().print(f"cannot write the output: {error.strerror}; free some space", style="red")
            return 1
        if error.errno != errno.EPIPE:
            raise
    _silence()
    return BROKEN_PIPE


def _is_of_broken_pipe(error: BaseException) -> bool:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, BrokenPipeError):
            return True
        cause = cause.__cause__ or cause.__context__
    return False


def _silence() -> None:
    """Discards what is still buffered, about which the interpreter would complain when it exits."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.__stdout__.fileno() if sys.__stdout__ else 1)
    os.close(nowhere)
