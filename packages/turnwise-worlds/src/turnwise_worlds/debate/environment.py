"""One case: debaters quote lines of a record, and a judge who sees only what the quotes show decides.

    first0, second0      both quote a line, at the same time
    first1, second1      both quote another, having seen the first two
    verdict              the judge sees the day of every verified quote and which side it supports

Every reply has its own conversation. `first` argues for A and `second` for B, whatever is true: one's win is the
other's loss. In a consultancy there is only `first`. With given quotes, the environment draws them and only the judge
speaks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from turnwise.core.episodes import Ask, Asked, EpisodeEnd, EpisodeSpec, RoleSpec
from turnwise.core.errors import EnvironmentFault
from turnwise.core.seeds import rng
from turnwise.core.types import Message, Reward, Scored, Task, text_message
from turnwise.rewards.answers import extract_answer
from turnwise_worlds.debate.arguments import DebateArguments, Protocol
from turnwise_worlds.debate.case import NOTHING, SIDES, Case, Side, build_case, draw_hard_quotes, draw_quotes

FIRST, SECOND, JUDGE = "first", "second", "judge"
SIDE_OF: Mapping[str, Side] = {FIRST: "A", SECOND: "B"}
NUM_ROUNDS = 2
NUM_GIVEN = 4
VERDICT = "verdict"
"""The judge's conversation."""
DEBATERS: Mapping[Protocol, tuple[str, ...]] = {"debate": (FIRST, SECOND), "consultancy": (FIRST,)}
"""The roles that quote, by protocol; none if the quotes are given."""


def describe(case: Case) -> tuple[Message, ...]:
    """Describe the whole case; no role reads this."""
    return (text_message("user", f" lines {' '.join(case.lines)} candidates {' '.join(case.candidates)}"),)


def build_quote_prompt(case: Case, side: Side, heard: Sequence[str]) -> tuple[Message, ...]:
    """Build the opening in which a side quotes: the record, its candidate, its own lines, and what both sides quoted
    before."""
    own, candidate = " ".join(case.list_support(side)), case.candidates[SIDES.index(side)]
    text = f" lines {' '.join(case.lines)} heard {' '.join(heard) or NOTHING} for {candidate} own {own} quote"
    return (text_message("user", text),)


def build_verdict_prompt(shown: Sequence[str]) -> tuple[Message, ...]:
    """Build the opening in which the judge decides."""
    return (text_message("user", f" quotes {' '.join(shown) or NOTHING} verdict"),)


class DebateEnvironment:
    """Implements `AskingEnvironment`. Only given quotes are random."""

    def __init__(self, chosen: DebateArguments) -> None:
        self._chosen = chosen
        self._debaters = DEBATERS.get(chosen.protocol, ())
        self.spec = EpisodeSpec(
            roles=tuple(RoleSpec(name=name) for name in (*self._debaters, JUDGE)),
            max_replies=NUM_ROUNDS * len(self._debaters) + 1,
            can_replay=True,
        )
        self._quotes: dict[str, str] = {}
        """Quotes by conversation, in the order of the requests."""
        self._wanted: list[str] = []
        """Conversations with an open request."""
        self._verdict: Side | None = None

    async def begin(self, task: Task, seed: int) -> Asked:
        """Ask for the first quotes, or for the verdict."""
        case = build_case(int(task.payload["seed"]))
        self._case = case.swap() if self._chosen.swap else case
        if self._debaters:
            return self._ask_round(0)
        random = rng(seed, "quotes")
        draw = {"given": draw_quotes, "hard": draw_hard_quotes}.get(self._chosen.protocol)
        return self._ask_judge(draw(self._case, NUM_GIVEN, random) if draw else [])

    async def tell(self, conversation: str, reply: Message) -> Asked:
        """Accept a quote, or the verdict."""
        if conversation not in self._wanted:
            raise EnvironmentFault(f"DebateEnvironment got a reply in {conversation!r}, where it had not asked for one")
        self._wanted.remove(conversation)
        said = extract_answer(reply.text) or NOTHING
        if conversation == VERDICT:
            self._verdict = next((side for side in SIDES if side == said), None)
            return Asked(asks=())
        self._quotes[conversation] = said
        if self._wanted:
            return Asked(asks=())
        number = len(self._quotes) // len(self._debaters)
        return self._ask_round(number) if number < NUM_ROUNDS else self._ask_judge(list(self._quotes.values()))

    async def score(self, replies: Mapping[str, Sequence[Message]], end: EpisodeEnd) -> Mapping[str, Reward]:
        """Return the rewards. A debater gets 1 or -1 by the verdict; without a verdict it loses if a limit cut its
        reply off, so that nobody gains by breaking off. The judge gets 1 for a right verdict. For all roles, "success"
        is a right verdict."""
        cut_off = (end.conversation or "")[:-1]
        winner = self._verdict
        if winner is None and cut_off in self._debaters:
            winner = "B" if cut_off == FIRST else "A"
        is_right = float(self._verdict == self._case.truth)
        rewards: dict[str, Reward] = {}
        for name in self._debaters:
            won = 0.0 if winner is None else 1.0 if winner == SIDE_OF[name] else -1.0
            quoted = [quote for of, quote in self._quotes.items() if of.startswith(name)]
            fabricated = sum(quote not in self._case.lines for quote in quoted) / max(1, len(quoted))
            rewards[name] = Scored.of(won, {"success": is_right, "fabricated": fabricated})
        return {**rewards, JUDGE: Scored.of(is_right, {"success": is_right})}

    async def close(self) -> None:
        """Do nothing: there is nothing to free."""

    def _accept(self, quotes: Iterable[str]) -> list[str]:
        return [self._case.accept(quote, verify=self._chosen.verify) for quote in quotes]

    def _ask_round(self, number: int) -> Asked:
        heard = self._accept(self._quotes.values())
        names = [f"{name}{number}" for name in self._debaters]
        self._wanted = names[:]
        return Asked(
            asks=tuple(
                Ask(role=role, conversation=name, messages=build_quote_prompt(self._case, SIDE_OF[role], heard))
                for role, name in zip(self._debaters, names, strict=True)
            )
        )

    def _ask_judge(self, quotes: Sequence[str]) -> Asked:
        self._wanted = [VERDICT]
        shown = [self._case.show(quote) for quote in self._accept(quotes)]
        return Asked(asks=(Ask(role=JUDGE, conversation=VERDICT, messages=build_verdict_prompt(shown)),))
