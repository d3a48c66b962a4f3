"""Drafts the next tokens of a group's member from what its members wrote before.

Members of a group answer the same task: they call the same tools, copy the same names, quote the same results. A suffix
automaton per group holds the text of all its members, prompts included (the idea of grouped drafting is Seer's, arXiv
2511.14617). A draft is what most often followed the longest recent text of a member that occurs elsewhere. Drafts
change how fast tokens are sampled, never which tokens."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from turnwise.core.types import Session

ROOT = 0
MIN_CONFIDENCE = 0.5
"""A draft is extended while the estimated probability that all of it is right is at least this."""
MEMORY = 64
"""Number of recent guesses from which a group's estimates are corrected."""
MAX_COUNTED = 32
"""Most contexts, longest first, in which a new token is counted: bounds the work on repetitive text."""


class SuffixAutomaton:
    """All substrings of several growing texts, in time and memory linear in the tokens."""

    def __init__(self) -> None:
        self.next: list[dict[int, int]] = [{}]
        """For each state: token to state."""
        self.link = [-1]
        """For each state: the state of its longest suffix that occurs in more places."""
        self.length = [0]
        """For each state: number of tokens of its longest text."""
        self.count = [0]
        """For each state: number of places where its text ends (counted for the longest `MAX_COUNTED` suffixes of each
        place)."""

    def extend(self, last: int, token: int) -> int:
        """Append `token` to the text that ends at state `last` (`ROOT` for an empty one). Returns the state where the
        text now ends."""
        state = self._extend(last, token)
        at = state
        for _ in range(MAX_COUNTED):
            if at == ROOT:
                break
            self.count[at] += 1
            at = self.link[at]
        return state

    def _extend(self, last: int, token: int) -> int:
        longer = self.next[last].get(token)
        if longer is not None:
            return longer if self.length[longer] == self.length[last] + 1 else self._split(last, token, longer)
        state = self._add(self.length[last] + 1, {}, ROOT, 0)
        at = last
        while at != -1 and token not in self.next[at]:
            self.next[at][token] = state
            at = self.link[at]
        if at != -1:
            longer = self.next[at][token]
            self.link[state] = longer if self.length[longer] == self.length[at] + 1 else self._split(at, token, longer)
        return state

    def _split(self, at: int, token: int, longer: int) -> int:
        """Split off a state for the shorter texts of `longer`, which also occur where its longest text does not."""
        copy = self._add(self.length[at] + 1, dict(self.next[longer]), self.link[longer], self.count[longer])
        self.link[longer] = copy
        while at != -1 and self.next[at].get(token) == longer:
            self.next[at][token] = copy
            at = self.link[at]
        return copy

    def _add(self, length: int, following: dict[int, int], link: int, count: int) -> int:
        self.next.append(following)
        self.link.append(link)
        self.length.append(length)
        self.count.append(count)
        return len(self.length) - 1

    def find(self, last: int) -> tuple[int, int]:
        """Find the longest suffix of the text ending at `last` that was continued somewhere. Returns its state and
        length, `(ROOT, 0)` if there is none."""
        at = last
        while at != ROOT and not self.next[at]:
            at = self.link[at]
        return at, self.length[at]

    def guess(self, at: int, matched: int) -> Guess | None:
        """Return what most often followed a text of `matched` tokens at state `at`; None if nothing did or the text is
        empty.

        Its probability is estimated as (times it followed) / (times the text went on + 1 / matched).
        """
        following = self.next[at]
        if not matched or not following:
            return None
        token, state = max(following.items(), key=lambda item: self.count[item[1]])
        return Guess(
            token, state, self.count[state] / (sum(self.count[other] for other in following.values()) + 1 / matched)
        )


@dataclass(frozen=True, slots=True)
class Guess:
    """A guess at the next token."""

    token: int
    state: int
    """The state where the text ends with it."""
    probability: float


@dataclass(slots=True)
class _Member:
    """How much of a conversation the automaton contains."""

    state: int = ROOT
    num_tokens: int = 0
    guess: Guess | None = None
    """The first guess made last, after `num_tokens` tokens."""


@dataclass(slots=True)
class _Group:
    """One automaton, its members, and how well its guesses do."""

    automaton: SuffixAutomaton = field(default_factory=SuffixAutomaton)
    members: dict[str, _Member] = field(default_factory=dict)
    """Members by session name."""
    expected: float = MEMORY / 8
    right: float = MEMORY / 8
    """Decaying sums over about the last `MEMORY` guesses: of estimated probabilities, and of guesses that came true."""

    @property
    def trust(self) -> float:
        """Factor by which an estimate is multiplied."""
        return min(1.0, self.right / self.expected)

    def read(self, name: str, tokens: Sequence[int]) -> _Member:
        """Add what is new in `tokens` (the whole conversation) and judge the last guess by it."""
        member = self.members.setdefault(name, _Member())
        if member.num_tokens > len(tokens):
            member = self.members[name] = _Member()
        if member.guess is not None and member.num_tokens < len(tokens):
            self.expected += member.guess.probability - self.expected / MEMORY
            self.right += (tokens[member.num_tokens] == member.guess.token) - self.right / MEMORY
            member.guess = None
        for token in tokens[member.num_tokens :]:
            member.state = self.automaton.extend(member.state, token)
        member.num_tokens = len(tokens)
        return member


class GroupDrafts:
    """Automata of the most recently seen groups."""

    def __init__(self, *, max_draft_tokens: int, max_groups: int) -> None:
        self._max_draft_tokens = max_draft_tokens
        self._max_groups = max_groups
        self._groups: OrderedDict[str, _Group] = OrderedDict()

    def read(self, session: Session, tokens: Sequence[int]) -> None:
        """Add what is new in this conversation to its group."""
        self._find(session.group).read(session.name, tokens)

    def draft(self, session: Session, tokens: Sequence[int], max_tokens: int) -> tuple[int, ...]:
        """Draft at most `max_tokens` tokens that may follow the conversation `tokens`.

        Estimates are corrected by how often the group's recent guesses came true, so text that does not repeat is soon
        no longer drafted; guesses are judged whether or not they were drafted, so text that begins to repeat is
        noticed."""
        group = self._find(session.group)
        member = group.read(session.name, tokens)
        at, matched = group.automaton.find(member.state)
        guess = member.guess = group.automaton.guess(at, matched)
        draft: list[int] = []
        confidence = 1.0
        while guess is not None and len(draft) < min(max_tokens, self._max_draft_tokens):
            confidence *= group.trust * guess.probability
            if confidence < MIN_CONFIDENCE:
                break
            draft.append(guess.token)
            matched += 1
            guess = group.automaton.guess(guess.state, matched)
        return tuple(draft)

    def clear(self) -> None:
        """Forget everything."""
        self._groups.clear()

    def _find(self, name: str) -> _Group:
        group = self._groups.setdefault(name, _Group())
        self._groups.move_to_end(name)
        if len(self._groups) > self._max_groups:
            self._groups.popitem(last=False)
        return group
