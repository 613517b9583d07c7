"""Help texts for the terminal: a docstring's paragraphs are reflowed, its indented lines and brackets are kept as they
are."""

import inspect

import typer
from rich.markup import escape

AS_IT_STANDS = "[not dim]{}[/]"
"""Makes a line stand out from prose, which is dim. It also hides the line's indentation from Typer, which removes
indentation common to all lines."""


def let_flow(app: typer.Typer) -> None:
    """Gives every command and group of `app`, which uses Rich markup, its docstring as help."""
    for command in app.registered_commands:
        command.help = flowing(inspect.getdoc(command.callback) or "")
    if app.registered_callback is not None:
        app.registered_callback.help = flowing(inspect.getdoc(app.registered_callback.callback) or "")
    for group in app.registered_groups:
        if group.typer_instance is not None:
            let_flow(group.typer_instance)


def flowing(docstring: str) -> str:
    """A cleaned docstring as markup: the lines of a paragraph are joined, `[word]` is shown as written."""
    return "\n\n".join(_paragraph(paragraph) for paragraph in docstring.split("\n\n"))


def _paragraph(paragraph: str) -> str:
    lines = paragraph.splitlines()
    if any(line.startswith(" ") for line in lines):
        return "\n".join(AS_IT_STANDS.format(escape(line)) for line in lines)
    return escape(" ".join(lines))
