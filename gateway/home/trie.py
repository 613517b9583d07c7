"""Topic filters and who subscribed with them: the exact match that the router's coarse route keys leave to the home.

MQTT 5.0, section 4.7: `+` one level, `#` the rest, and neither at the first level matches a topic that starts with `$`.
"""

from typing import Generic, TypeVar

S = TypeVar("S")

_CACHED_WORDS = 500_000
"""Size of what is remembered, a word for each match and each eight characters of a topic, and some for their lists."""

_ENTRY_WORDS = 24


class _Node(Generic[S]):
    __slots__ = ("children", "here")

    def __init__(self) -> None:
        self.children: dict[str, _Node[S]] = {}
        self.here: dict[str, S] = {}


class SubscriptionTrie(Generic[S]):
    """Maps filters to subscriptions, each under a subscriber's key; matches are remembered until the next change."""

    def __init__(self) -> None:
        self._root: _Node[S] = _Node()
        self._cache: dict[str, list[S]] = {}
        self._cached_words = 0

    def add(self, topic_filter: str, key: str, subscription: S) -> None:
        """Adds or replaces the subscription of `key` with `topic_filter`."""
        node = self._root
        for level in topic_filter.split("/"):
            node = node.children.setdefault(level, _Node())
        node.here[key] = subscription
        self._forget()

    def remove(self, topic_filter: str, key: str) -> None:
        """Removes the subscription of `key` with `topic_filter`, if there is one, and the branches it leaves empty."""
        path = [self._root]
        levels = topic_filter.split("/")
        for level in levels:
            child = path[-1].children.get(level)
            if child is None:
                return
            path.append(child)
        path[-1].here.pop(key, None)
        for parent, level, node in zip(reversed(path[:-1]), reversed(levels), reversed(path[1:]), strict=True):
            if node.here or node.children:
                break
            del parent.children[level]
        self._forget()

    def match(self, topic: str) -> list[S]:
        """All subscriptions whose filter matches `topic`; the list is shared, do not change it."""
        found = self._cache.get(topic)
        if found is None:
            found = self.search(topic)
            words = _ENTRY_WORDS + len(topic) // 8 + len(found)
            if self._cached_words + words > _CACHED_WORDS:
                self._forget()
            if words <= _CACHED_WORDS:
                self._cache[topic] = found
                self._cached_words += words
        return found

    def _forget(self) -> None:
        self._cache.clear()
        self._cached_words = 0

    def __bool__(self) -> bool:
        return bool(self._root.children)

    def search(self, topic: str) -> list[S]:
        """As `match`, without remembering."""
        levels = topic.split("/")
        found: list[S] = []
        stack = [(self._root, 0)]
        while stack:
            node, depth = stack.pop()
            wildcards = depth > 0 or not topic.startswith("$")
            rest = node.children.get("#")
            if rest is not None and wildcards:
                found.extend(rest.here.values())
            if depth == len(levels):
                found.extend(node.here.values())
                continue
            exact = node.children.get(levels[depth])
            if exact is not None:
                stack.append((exact, depth + 1))
            single = node.children.get("+")
            if single is not None and wildcards:
                stack.append((single, depth + 1))
        return found
