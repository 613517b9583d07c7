"""SQL in files: named blocks, one per query or view."""


def named_blocks(text: str) -> dict[str, str]:
    """SQL by name; each block begins with a line `-- name: …`."""
    blocks = {}
    for block in text.split("-- name: ")[1:]:
        name, _, sql = block.partition("\n")
        blocks[name.strip()] = sql.strip()
    return blocks
