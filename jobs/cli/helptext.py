"""Help texts for the terminal: a docstring's paragraphs flow, its indented lines stay, its brackets are no markup."""

import inspect

import typer
from rich.markup import escape

AS_IT_STANDS = "[not dim]{}[/]"
"""Stands out from prose, which is dim. And a line that begins with it is not indented for Typer, which takes the
indentation away where all lines have some."""


def let_flow(app: typer.Typer) -> None:
    """Give every command and group of `app`, which speaks Rich's markup, its docstring as help."""
    for command in app.registered_commands:
        command.help = flowing(inspect.getdoc(command.callback) or "")
    if app.registered_callback is not None:
        app.registered_callback.help = flowing(inspect.getdoc(app.registered_callback.callback) or "")
    for group in app.registered_groups:
        if group.typer_instance is not None:
            let_flow(group.typer_instance)


def flowing(docstring: str) -> str:
    """A cleaned docstring as markup: what the source breaks into lines is one, `[word]` is shown as it is written."""
    return "\n\n".join(_paragraph(paragraph) for paragraph in docstring.split("\n\n"))


def _paragraph(paragraph: str) -> str:
    lines = paragraph.splitlines()
    if any(line.startswith(" ") for line in lines):
        return "\n".join(AS_IT_STANDS.format(escape(line)) for line in lines)
    return escape(" ".join(lines))
