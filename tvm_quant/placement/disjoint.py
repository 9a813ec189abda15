"""Sets that grow together."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Generic, TypeVar

Item = TypeVar("Item", bound=Hashable)


class DisjointSets(Generic[Item]):
    """Which items belong together, under joins.

    >>> sets = DisjointSets[str]()
    >>> sets.join("a", "b"); sets.join("b", "c")
    >>> sets.together("a", "c"), sets.together("a", "d")
    (True, False)
    """

    def __init__(self) -> None:
        self._parent: dict[Item, Item] = {}

    def root(self, item: Item) -> Item:
        """The item that stands for the set of `item`."""
        while self._parent.get(item, item) != item:
            item = self._parent[item]
        return item

    def join(self, one: Item, other: Item) -> None:
        """Make the sets of two items one."""
        self._parent[self.root(other)] = self.root(one)

    def join_all(self, items: Sequence[Item]) -> None:
        """Make the sets of all items one."""
        for item in items[1:]:
            self.join(items[0], item)

    def together(self, one: Item, other: Item) -> bool:
        """Whether two items are in one set."""
        return self.root(one) == self.root(other)

    def sets(self, items: Iterable[Item]) -> list[list[Item]]:
        """`items` by set, in order of first appearance."""
        found: dict[Item, list[Item]] = {}
        for item in items:
            found.setdefault(self.root(item), []).append(item)
        return list(found.values())
