"""Pages as HTML. The templates know parts only, not pages (:mod:`gateway.console.parts`)."""

from functools import cache
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined

from gateway.console import applications, clients, messages, overview, redundant_feeds, refusals, retained, shards
from gateway.console.parts import Banner, Page

PAGES = (
    (overview.PATH, "Overview"),
    (shards.PATH, "Shards"),
    (clients.PATH, "Clients"),
    (clients.QUEUES_PATH, "Queues"),
    (retained.PATH, "Topics"),
    (messages.PATH, "Messages"),
    (redundant_feeds.PATH, "Feeds"),
    (refusals.PATH, "Refusals"),
    (applications.PATH, "Routers and ledger"),
)
"""The navigation: paths and titles."""

ASSETS = {
    "console.css": "text/css",
    "console.js": "text/javascript",
    "plots.js": "text/javascript",
    "uPlot.js": "text/javascript",
    "uPlot.css": "text/css",
    "icon.svg": "image/svg+xml",
}


def html(page: Page, banner: Banner, *, only_live: bool = False) -> bytes:
    """A whole page, or the part of it that is updated. Takes milliseconds: do not call it on the event loop."""
    template = _environment().get_template("live.j2" if only_live else "page.j2")
    text = template.render(page=page, banner=banner, pages=PAGES)
    return text.encode(errors="backslashreplace")


def asset(file: str) -> bytes:
    """The content of one of ASSETS."""
    return (files("gateway.console") / file).read_bytes()


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("gateway.console", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
