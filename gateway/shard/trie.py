"""Topic filters and who subscribed with them: the exact match that the router's coarse route keys leave to the home.

MQTT 5.0, section 4.7: `+` one level, `#` the rest, and neither at the first level matches a topic that starts with `$`.

Successive levels without a branch share a node. So a search visits at most two nodes for each filter that matches,
however many levels the filter has. A search that visits many nodes can be made in steps: :class:`Search`.
"""

from typing import Generic, TypeVar

S = TypeVar("S")

_CACHED_WORDS = 500_000
"""Size of what is remembered, a word for each match and each eight characters of a topic, and some for their lists."""

_ENTRY_WORDS = 24

_ALL = 1 << 62


class _Node(Generic[S]):
    """A node stands for the levels of the nodes above it, its key among its parent's children, and `label`. `fixed` are
    the levels of `label` that are not wildcards, with their positions."""

    __slots__ = ("children", "fixed", "here", "label")

    def __init__(self, label: tuple[str, ...] = ()) -> None:
        self.children: dict[str, _Node[S]] = {}
        self.here: dict[str, S] = {}
        self.set_label(label)

    def set_label(self, label: tuple[str, ...]) -> None:
        self.label = label
        self.fixed = tuple((at, level) for at, level in enumerate(label) if level != "+")

    def split(self, at: int) -> None:
        """Keeps the label up to `at`, and moves the rest into a child."""
        lower: _Node[S] = _Node(self.label[at + 1 :])
        lower.children, lower.here = self.children, self.here
        self.children, self.here = {self.label[at]: lower}, {}
        self.set_label(self.label[:at])

    def join(self) -> None:
        """Merges with its only child."""
        ((key, lower),) = self.children.items()
        self.children, self.here = lower.children, lower.here
        self.set_label((*self.label, key, *lower.label))


class Search(Generic[S]):
    """A search for the subscriptions whose filter matches a topic, in as many steps as the caller likes.

    The trie may change between two steps. A subscription that exists throughout is found once; one that is added or
    removed meanwhile is found once or not at all. `visited` counts nodes.
    """

    __slots__ = ("_levels", "_stack", "found", "visited")

    def __init__(self, root: _Node[S], topic: str) -> None:
        self._levels = topic.split("/")
        self._stack = _beginning(root, topic, self._levels)
        self.found: list[S] = []
        self.visited = 0

    def run(self, most: int = _ALL) -> bool:
        """Visits up to `most` more nodes; True if the search is over."""
        self.visited += _visit(self._stack, self._levels, self.found, most)
        return not self._stack


def _beginning(root: _Node[S], topic: str, levels: list[str]) -> list[tuple[_Node[S], int]]:
    if not topic.startswith("$"):
        return [(root, 0)]
    first = root.children.get(levels[0])  # [MQTT-4.7.2-1]
    return [] if first is None else [(first, 1)]


def _visit(stack: list[tuple[_Node[S], int]], levels: list[str], found: list[S], most: int) -> int:
    """Visits up to `most` nodes: those on the stack, with the number of the topic's levels above them, and those below.
    Returns how many it visited."""
    n_levels, left = len(levels), most
    while stack and left:
        left -= 1
        node, depth = stack.pop()
        if node.label:
            end = depth + len(node.label)
            if end > n_levels:
                continue
            for at, level in node.fixed:
                if levels[depth + at] != level:
                    break
            else:
                depth = end
            if depth != end:
                continue
        children = node.children
        if depth == n_levels:
            found.extend(node.here.values())
            if children and (rest := children.get("#")) is not None:  # `a/#` matches `a` too
                found.extend(rest.here.values())
        elif children:
            if (rest := children.get("#")) is not None:
                found.extend(rest.here.values())
            if (exact := children.get(levels[depth])) is not None:
                stack.append((exact, depth + 1))
            if (single := children.get("+")) is not None:
                stack.append((single, depth + 1))
    return most - left


class SubscriptionTrie(Generic[S]):
    """Maps filters to subscriptions, each under a subscriber's key; matches are remembered until the next change."""

    def __init__(self) -> None:
        self._root: _Node[S] = _Node()
        self._cache: dict[str, list[S]] = {}
        self._cached_words = 0

    def add(self, topic_filter: str, key: str, subscription: S) -> None:
        """Adds or replaces the subscription of `key` with `topic_filter`."""
        node, levels, depth = self._root, topic_filter.split("/"), 0
        while depth < len(levels):
            level = levels[depth]
            depth += 1
            child = node.children.get(level)
            if child is None:
                node = self._grow(node, level, tuple(levels[depth:]))
                break
            common = _common(child.label, levels, depth)
            if common < len(child.label):
                child.split(common)
            node, depth = child, depth + common
        node.here[key] = subscription
        self._forget()

    def remove(self, topic_filter: str, key: str) -> None:
        """Removes the subscription of `key` with `topic_filter`, if there is one, and the branches it leaves empty."""
        path, keys, levels, depth = [self._root], [""], topic_filter.split("/"), 0
        while depth < len(levels):
            child = path[-1].children.get(levels[depth])
            if child is None or _common(child.label, levels, depth + 1) < len(child.label):
                return
            path.append(child)
            keys.append(levels[depth])
            depth += 1 + len(child.label)
        path[-1].here.pop(key, None)
        while len(path) > 1 and not (path[-1].here or path[-1].children):
            path.pop()
            del path[-1].children[keys.pop()]
        node = path[-1]
        if node is not self._root and not node.here and len(node.children) == 1 and "#" not in node.children:
            node.join()
        self._forget()

    def match(self, topic: str) -> list[S]:
        """All subscriptions whose filter matches `topic`; the list is shared, do not change it."""
        found = self._cache.get(topic)
        if found is None:
            found = self.search(topic)
            self._remember(topic, found)
        return found

    def begin(self, topic: str, most: int) -> "list[S] | Search[S]":
        """As `match` if that visits up to `most` nodes, else the unfinished search for the caller to continue."""
        found = self._cache.get(topic)
        if found is not None:
            return found
        search = Search(self._root, topic)
        if not search.run(most):
            return search
        self._remember(topic, search.found)
        return search.found

    def start(self, topic: str) -> Search[S]:
        """A search that has not begun; its result is not remembered."""
        return Search(self._root, topic)

    def __bool__(self) -> bool:
        return bool(self._root.children)

    def search(self, topic: str) -> list[S]:
        """As `match`, without remembering."""
        levels = topic.split("/")
        found: list[S] = []
        _visit(_beginning(self._root, topic, levels), levels, found, _ALL)
        return found

    def _grow(self, parent: _Node[S], level: str, rest: tuple[str, ...]) -> _Node[S]:
        """Adds a branch; `#` gets a node of its own."""
        if not rest or rest[-1] != "#":
            node = parent.children[level] = _Node(rest)
            return node
        above = parent.children[level] = _Node(rest[:-1])
        node = above.children["#"] = _Node()
        return node

    def _remember(self, topic: str, found: list[S]) -> None:
        words = _ENTRY_WORDS + len(topic) // 8 + len(found)
        if self._cached_words + words > _CACHED_WORDS:
            self._forget()
        if words <= _CACHED_WORDS:
            self._cache[topic] = found
            self._cached_words += words

    def _forget(self) -> None:
        self._cache.clear()
        self._cached_words = 0


def _common(label: tuple[str, ...], levels: list[str], depth: int) -> int:
    """How many levels of `label` equal those in `levels` from `depth` on."""
    common = 0
    for level in label:
        if depth + common == len(levels) or levels[depth + common] != level:
            break
        common += 1
    return common
