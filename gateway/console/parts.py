"""Parts of a page as values; `live.j2` renders them. Pages are made of these only, so a new page needs no template.

All text is escaped when it is rendered. Text that others chose (client ids, topics, user names, names of gateways) goes
through :func:`name`, which makes characters visible that could hide or change the text's direction, and cuts it.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple
from urllib.parse import urlencode

from gateway.observe.http_listener import LINE_BYTES
from schemas.visible import visible

NAME_LENGTH = 60
"""A longer name is cut; its title has the whole name, up to TITLE_LENGTH."""
TITLE_LENGTH = 1_000
ROWS = 100
"""The most rows of a table."""
HREF_LENGTH = LINE_BYTES - 1_000
"""A longer link is left out: the listener would refuse its request line. The longest topic fits, each byte as %XX."""
CUT = "…"
UNKNOWN = "–"

Kind = Literal["text", "number", "time", "name", "good", "bad"]


class Cell(NamedTuple):
    """`kind` is the style; `title` the whole of a text that was cut; `href` where the text leads, "" for nowhere."""

    text: str
    kind: Kind = "text"
    title: str = ""
    href: str = ""


class Table(NamedTuple):
    """`headings` of the columns; `empty` is the sentence shown if there are no `rows`; `has_more`: whether other
    rows follow, and `more` leads to them, "" if their names are too long for a link."""

    caption: str
    headings: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    empty: str
    has_more: bool = False
    more: str = ""


class Line(NamedTuple):
    """A line of a plot: what it is, and its value now as text."""

    label: str
    now: str


class Plot(NamedTuple):
    """A plot of a few lines; `top` is the largest value as text. `data` is for the script that draws it, in JSON:
    `times`, seconds before now, not positive; `lines`, the values of each; `span`, the seconds that are shown; `unit`.
    """

    title: str
    lines: Sequence[Line]
    top: str
    data: str


class Section(NamedTuple):
    """`title` is "" if the page's says it all; `figures` are single values by label; `notes` are sentences; `code` are
    commands to copy."""

    title: str
    lead: str = ""
    figures: Sequence[tuple[str, str]] = ()
    plots: Sequence[Plot] = ()
    tables: Sequence[Table] = ()
    notes: Sequence[str] = ()
    code: Sequence[str] = ()


class Field(NamedTuple):
    """A field of a search form: free text, or one of `choices`."""

    name: str
    label: str
    value: str
    choices: Sequence[tuple[str, str]] = ()


class Action(NamedTuple):
    """A button that changes something: a POST to `path`, with a form token (:mod:`gateway.console.form_tokens`)."""

    label: str
    path: str
    token: str


class Page(NamedTuple):
    """`path` is that of the page in the navigation. Search and actions stay as they are while the rest is updated."""

    path: str
    title: str
    sections: Sequence[Section]
    search: Sequence[Field] = ()
    actions: Sequence[Action] = ()
    notice: str = ""


class Banner(NamedTuple):
    """What every page says: the gateway, its version, its time (UTC), and why it is not ready, "" if it is. `warning`:
    what is wrong in the cluster, "" if nothing is; a gateway may be ready all the same."""

    gateway: str
    version: str
    time: str
    fault: str
    warning: str = ""


def name(text: str, href: str = "") -> Cell:
    """A text that others chose; a dash for none."""
    if not text:
        return Cell(UNKNOWN)
    shown = visible(text[: TITLE_LENGTH + 1])
    if len(shown) <= NAME_LENGTH:
        return Cell(shown, "name", href=href)
    title = shown if len(shown) <= TITLE_LENGTH else shown[:TITLE_LENGTH] + CUT
    return Cell(shown[:NAME_LENGTH] + CUT, "name", title, href)


def link(path: str, **query: str) -> str:
    """The address of a page with a query; "" if it would be too long to be asked for."""
    given = {key: value for key, value in query.items() if value}
    href = f"{path}?{urlencode(given, errors='replace')}" if given else path
    return href if len(href) <= HREF_LENGTH else ""
