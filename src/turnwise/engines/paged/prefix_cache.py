"""Tracks who owns which page of key-value memory, and which pages already hold the beginning of a prompt.

Pure bookkeeping: integers, no tensors. "Tokens" here are their keys (`core.keys.to_keys`), which equal the ids for
text. A page holds `page_size` consecutive tokens of one conversation. Pages whose tokens are computed are nodes of a
radix tree over these keys (one edge per page; the last edge of a conversation may be shorter), so a later request with
the same beginning reuses the same pages. A `Lease` is one request's hold on its pages.

Three rules keep it sound:

1. A position of a page is written once, by the only lease that holds the page; tokens registered in the tree are never
written again.
2. A lease that holds a node's page holds the pages of all its ancestors, so an idle node has only idle descendants.
3. Only idle pages (held by no lease) are evicted, least recently used first, leaves before their parents.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

from turnwise.core.errors import EngineError

BLANK_PAGE = 0
"""A page that no lease ever holds; it fills page tables up to a common width."""


@dataclass(slots=True, eq=False)
class Node:
    """A page that holds `tokens`, which follow the tokens of its ancestors."""

    tokens: tuple[int, ...]
    page: int
    parent: Node | None
    version: int
    """The oldest weight version with which the page was computed."""
    last_used: int = 0
    children: dict[int, dict[tuple[int, ...], Node]] = field(default_factory=dict)
    """Children by first token, then by all tokens."""

    def child(self, tokens: tuple[int, ...]) -> Node | None:
        """Return the child for exactly these tokens, or None."""
        return self.children.get(tokens[0], {}).get(tokens)


@dataclass(slots=True, eq=False)
class Lease:
    """One request's pages, in order. `node` is the deepest tree node whose page this lease holds at its place."""

    pages: list[int]
    node: Node
    num_reused: int
    """Tokens found in the cache when the lease began."""
    num_stale: int = 0
    """Of these, tokens computed with older weights (0 unless stale reuse is allowed)."""
    version: int = 0
    """The oldest weight version with which any of its tokens was computed."""
    num_registered: int = 0
    """Number of leading pages that are nodes of the tree."""


class PrefixCache:
    """Allocates pages, shares computed ones, evicts idle ones."""

    def __init__(self, *, num_pages: int, page_size: int) -> None:
        """`num_pages` usable pages, numbered from 1; page 0 is `BLANK_PAGE`."""
        if num_pages < 1 or page_size < 1:
            raise ValueError(
                f"a cache needs at least one page of at least one token; got num_pages={num_pages}, "
                f"page_size={page_size}"
            )
        self.num_pages = num_pages
        self.page_size = page_size
        self.version = 0
        self.num_evicted = 0
        """Pages evicted since the start."""
        self._free = list(range(num_pages, 0, -1))
        self._refs = [0] * (num_pages + 1)
        self._nodes: dict[int, Node] = {}
        self._root = Node((), BLANK_PAGE, None, 0)
        self._num_idle = 0
        self._clock = 0
        self._heap: list[tuple[int, int, Node]] = []
        self._pushes = 0

    @property
    def num_available(self) -> int:
        """Pages that can be allocated now, evicting idle ones where needed."""
        return len(self._free) + self._num_idle

    @property
    def num_held(self) -> int:
        """Pages held by a lease."""
        return self.num_pages - self.num_available

    def acquire(self, tokens: Sequence[int]) -> tuple[Lease, tuple[int, int] | None]:
        """Return a lease on the longest computed beginning of `tokens`, never on all of them: the last must run to be
        sampled from.

        The second value is a page copy `(source, destination)` that must happen before anything is written in this
        step: the beginning ended inside a page that another request may write or that continues differently. None when
        no copy is needed."""
        self._clock += 1
        size, limit = self.page_size, len(tokens) - 1
        lease = Lease([], self._root, 0, version=self.version)
        at = 0
        while at + size <= limit:
            child = lease.node.child(tuple(tokens[at : at + size]))
            if child is None:
                break
            self._hold(lease, child, size)
            lease.node = child
            lease.num_registered += 1
            at += size
        source, common = self._longest_tail(lease.node, tokens[at : min(at + size, limit)])
        if source is None:
            return lease, None
        if common == len(source.tokens) < size and self._refs[source.page] == 0:
            self._hold(lease, source, common)
            return lease, None
        page = self._allocate()
        if page is None:
            return lease, None
        self._count(lease, source, common)
        lease.pages.append(page)
        return lease, (source.page, page)

    def extend(self, lease: Lease, num_tokens: int) -> bool:
        """Extend the lease to `num_tokens` tokens. Returns False if memory is short; pages allocated until then stay
        with the lease."""
        while len(lease.pages) * self.page_size < num_tokens:
            page = self._allocate()
            if page is None:
                return False
            lease.pages.append(page)
        return True

    def register(self, lease: Lease, tokens: Sequence[int], num_computed: int) -> None:
        """Add the first `num_computed` tokens to the tree. Pages that another lease registered meanwhile replace the
        lease's own."""
        size = self.page_size
        while (lease.num_registered + 1) * size <= num_computed:
            index = lease.num_registered
            key = tuple(tokens[index * size : (index + 1) * size])
            node = lease.node.child(key)
            if node is None:
                node = self._attach(lease.node, key, lease.pages[index], lease.version)
            elif node.page != lease.pages[index]:
                own, lease.pages[index] = lease.pages[index], node.page
                self._ref(node.page)
                self._unref(own)
            lease.node = node
            lease.num_registered += 1
        at = lease.num_registered * size
        tail = tuple(tokens[at:num_computed])
        if tail and lease.node.child(tail) is None:
            self._attach(lease.node, tail, lease.pages[lease.num_registered], lease.version)

    def release(self, lease: Lease) -> None:
        """End the lease. Registered pages stay cached; the others are free. The lease must not be used again."""
        self._clock += 1
        for page in reversed(lease.pages):
            self._unref(page)
        lease.pages = []

    def discard(self, lease: Lease) -> list[int]:
        """End the lease of a request that failed. Returns the pages that only it wrote: they are free now and their
        content is not reliable."""
        private = lease.pages[lease.num_registered :]
        for page in private:
            earlier = self._nodes.get(page)
            if earlier is not None:
                self._detach(earlier)
        self.release(lease)
        return private

    def retire(self, node: Node) -> None:
        """Evict first, from now on, what the ended conversation does not share."""
        at: Node | None = node
        while at is not None and at.parent is not None and self._nodes.get(at.page) is at and self._refs[at.page] == 0:
            at.last_used = 0
            self._push(at)
            if sum(len(same) for same in at.parent.children.values()) > 1:
                break
            at = at.parent

    def clear(self, version: int) -> None:
        """Forget every cached token; the next ones belong to weight `version`. Raises EngineError while a lease is
        held."""
        if self.num_held:
            raise EngineError(
                f"the cache cannot be cleared for version {version}: {self.num_held} pages are in use; end their "
                "leases first"
            )
        self.version = version
        self._free = list(range(self.num_pages, 0, -1))
        self._nodes.clear()
        self._heap.clear()
        self._root = Node((), BLANK_PAGE, None, version)
        self._num_idle = 0

    def _longest_tail(self, node: Node, tokens: Sequence[int]) -> tuple[Node | None, int]:
        """Return the child of `node` that shares the longest beginning with `tokens`, and its length."""
        best, most = None, 0
        for child in node.children.get(tokens[0], {}).values() if tokens else ():
            common = 0
            for mine, theirs in zip(tokens, child.tokens, strict=False):
                if mine != theirs:
                    break
                common += 1
            # At equal length the shorter child may be reused without a copy.
            if common > most or (common == most and best is not None and len(child.tokens) < len(best.tokens)):
                best, most = child, common
        return best, most

    def _hold(self, lease: Lease, node: Node, num_tokens: int) -> None:
        self._ref(node.page)
        node.last_used = self._clock
        lease.pages.append(node.page)
        self._count(lease, node, num_tokens)

    def _count(self, lease: Lease, node: Node, num_tokens: int) -> None:
        lease.num_reused += num_tokens
        lease.num_stale += num_tokens if node.version != self.version else 0
        lease.version = min(lease.version, node.version)

    def _attach(self, parent: Node, tokens: tuple[int, ...], page: int, version: int) -> Node:
        """Add a node for `page`, replacing what the tree stored for the page's first tokens."""
        earlier = self._nodes.get(page)
        if earlier is not None:
            self._detach(earlier)
        node = Node(tokens, page, parent, version, self._clock)
        parent.children.setdefault(tokens[0], {})[tokens] = node
        self._nodes[page] = node
        return node

    def _detach(self, node: Node) -> None:
        assert node.parent is not None
        same = node.parent.children[node.tokens[0]]
        del same[node.tokens]
        if not same:
            del node.parent.children[node.tokens[0]]
        del self._nodes[node.page]

    def _ref(self, page: int) -> None:
        if self._refs[page] == 0:
            self._num_idle -= 1
        self._refs[page] += 1

    def _unref(self, page: int) -> None:
        self._refs[page] -= 1
        if self._refs[page]:
            return
        node = self._nodes.get(page)
        if node is None:
            self._free.append(page)
            return
        self._num_idle += 1
        node.last_used = self._clock
        self._push(node)

    def _push(self, node: Node) -> None:
        if not node.children:
            self._pushes += 1
            heapq.heappush(self._heap, (node.last_used, self._pushes, node))

    def _allocate(self) -> int | None:
        if not self._free and not self._evict():
            return None
        page = self._free.pop()
        self._refs[page] = 1
        return page

    def _evict(self) -> bool:
        """Free the least recently used idle leaf."""
        while self._heap:
            stamp, _, node = heapq.heappop(self._heap)
            # Entries may be out of date: the node was used, extended, replaced or evicted since.
            if (
                stamp != node.last_used
                or node.children
                or self._refs[node.page]
                or self._nodes.get(node.page) is not node
            ):
                continue
            self._detach(node)
            self._free.append(node.page)
            self._num_idle -= 1
            self.num_evicted += 1
            parent = node.parent
            assert parent is not None
            if parent.parent is not None and self._refs[parent.page] == 0:
                self._push(parent)
            return True
        return False
