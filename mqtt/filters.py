"""How topic filters, split into levels, relate to each other (MQTT 5.0, 4.7); used by access rules and policy.

A topic name is a filter without wildcards, so `covers` and `overlaps` serve PUBLISH and SUBSCRIBE alike.
"""

Levels = tuple[str, ...]

_WILD = ("+", "#")


def levels_of(topic_filter: str) -> Levels:
    """The levels of a valid filter; `+/#` becomes `#`, which matches the same topics."""
    levels = tuple(topic_filter.split("/"))
    return ("#",) if levels == ("+", "#") else levels


def covers(allowed: Levels, asked: Levels) -> bool:
    """Whether `allowed` matches every topic that `asked` matches: `a/#` covers `a/+/b` and `a`, `a/+` not `a/#`.

    A wildcard at the first level does not cover topics that begin with `$` [MQTT-4.7.2-1].
    """
    if allowed[0] in _WILD and asked[0].startswith("$"):
        return False
    for depth, wanted in enumerate(allowed):
        if wanted == "#":
            return True
        if depth == len(asked) or asked[depth] == "#" or wanted not in ("+", asked[depth]):
            return False
    return len(allowed) == len(asked)


def overlaps(denied: Levels, asked: Levels) -> bool:
    """Whether some topic matches both. Here wildcards of `denied` also match topics that begin with `$`: denying
    everything denies those too."""
    if asked[0] in _WILD and denied[0].startswith("$"):
        return False
    for depth in range(max(len(denied), len(asked))):
        one = denied[depth] if depth < len(denied) else None
        other = asked[depth] if depth < len(asked) else None
        if one == "#" or other == "#":
            return True
        if one is None or other is None or (one != other and one != "+" and other != "+"):
            return False
    return True
