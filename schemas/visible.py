"""Text from strangers, made safe for a terminal and a log."""


def visible(text: str) -> str:
    """The text with every non-printable character escaped, such as `\\x1b` or `\\u202e`."""
    return text if text.isprintable() else text.translate(_ESCAPES)


class _Escapes(dict[int, str]):
    """Maps each code point to what is written for it."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        self[code] = character if character.isprintable() else character.encode("unicode_escape").decode()
        return self[code]


_ESCAPES = _Escapes()
