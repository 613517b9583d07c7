"""matplotlib figures as SVG inside a page: with the page's colours, in light and dark mode, and with text that can be
read and selected.
"""

import html
import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

INK, FAINT = "#010101", "#020202"
SERIES = ("#030301", "#030302", "#030303", "#030304")
"""Placeholder colours, which nothing else in a figure has: the page's style sheet replaces them."""
_VARIABLES = {INK: "--ink", FAINT: "--faint"} | {color: f"--series-{n}" for n, color in enumerate(SERIES, 1)}

_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "waystation",
    "text.parse_math": False,
    "font.size": 9.0,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlecolor": INK,
    "grid.color": FAINT,
    "grid.alpha": 0.25,
    "legend.frameon": False,
    "legend.labelcolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "timezone": "UTC",
}


@contextmanager
def style() -> Iterator[None]:
    """Create and write figures within this context."""
    with mpl.rc_context(_STYLE):
        yield


def inline_svg(figure: Figure, anchor: str, label: str) -> str:
    """The figure as an `<svg>` element; `anchor` makes its ids unique on the page, `label` is its text for screen
    readers."""
    written = io.StringIO()
    FigureCanvasSVG(figure).print_svg(written, metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    _, begin, drawing = written.getvalue().partition("<svg ")
    drawing = re.sub(r"<style .*?</style>", "", drawing, flags=re.DOTALL)  # it would apply to the whole page
    drawing = re.sub(r' (width|height)="[0-9.]+pt"', "", drawing, count=2)
    drawing = re.sub(r'( id="|url\(#|href="#)', rf"\g<1>{anchor}-", drawing)
    for color, variable in _VARIABLES.items():
        drawing = drawing.replace(color, f"var({variable})")
    return f'{begin}role="img" aria-label="{html.escape(label)}" {drawing.strip()}'
