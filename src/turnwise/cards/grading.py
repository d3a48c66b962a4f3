"""Tries a family's grader: hand cases, near-misses of its own gold answers, replies without work, a second opinion."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from turnwise.audit.reward_attacks import ATTACKS
from turnwise.cards.measured import Agreement, KindCount, Rate
from turnwise.cards.near_misses import NearMiss, list_near_misses, list_near_plays
from turnwise.cards.playing import Outcome, Player
from turnwise.core.errors import EnvironmentFault, TurnwiseError, boundary
from turnwise.core.protocols import EnvironmentFamily, GoldAnswers, GradedCase, SecondOpinion, TriedGrader
from turnwise.core.seeds import derive_seed
from turnwise.core.types import Task
from turnwise.environments.episodes import Repeated
from turnwise.environments.mixture import list_families
from turnwise.rewards.answers import exact_match

NUM_EXAMPLES = 5
"""Disagreements that are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldTrial:
    """A family's gold answers and their near-misses before its environment."""

    accepted: Mapping[str, bool]
    """Whether the gold answer was, by the task's id; tasks that could not be scored are not there."""
    near: tuple[KindCount, ...]
    agreement: Agreement


def try_hand_cases(family: EnvironmentFamily) -> tuple[KindCount, ...]:
    """Return how often each kind of hand case was accepted, of all families of a mixture together; empty if there are
    none. Raises a TurnwiseError if a grader raises."""
    cases: list[GradedCase] = []
    for member in list_families(family):
        if isinstance(member, TriedGrader):
            with boundary(EnvironmentFault, "grade_hand_cases"):
                cases += member.grade_hand_cases()
    return _count_kinds((case.kind, case.is_right, case.is_accepted) for case in cases)


async def try_gold_answers(player: Player, tasks: Sequence[Task]) -> GoldTrial | None:
    """State the gold answer to each task alone, then its near-misses; None if the family names no gold answers."""
    family = player.family
    if not isinstance(family, GoldAnswers):
        return None
    golds = {task.id: family.gold_answer(task) for task in tasks}
    known = [task for task in tasks if golds[task.id].strip()]
    accepted: dict[str, bool] = {}
    tried: list[tuple[NearMiss, bool]] = []
    same, differ = 0, list[str]()
    for task in known:
        gold = golds[task.id]
        other = next((each for each in golds.values() if not exact_match(each, [gold], "squad") and each.strip()), "")
        random = Random(derive_seed(0, "near", task.id))
        said = [NearMiss(kind="the gold answer", answer=gold, is_right=True), *list_near_misses(gold, other, random)]
        for place, miss in enumerate(said):
            reply = family.answer_reply(task, miss.answer)
            outcome = await player.play(task, Repeated([reply] * player.max_turns), max_turns=player.max_turns)
            if outcome.success is None:
                continue
            won = outcome.success > 0.5
            if place == 0:
                accepted[task.id] = won
            else:
                tried.append((miss, won))
            if won == bool(exact_match(miss.answer, [gold], "squad")):
                same += 1
            else:
                differ.append(f"{miss.answer!r} for {gold!r}: {'paid' if won else 'refused'}")
    return GoldTrial(
        accepted=accepted,
        near=_count_kinds((miss.kind, miss.is_right, won) for miss, won in tried),
        agreement=Agreement(
            by="exact match by SQuAD's rule",
            same=Rate(hits=same, count=same + len(differ)),
            examples=tuple(differ[:NUM_EXAMPLES]),
        ),
    )


async def try_attacks(player: Player, tasks: Sequence[Task]) -> tuple[KindCount, ...]:
    """Return how often replies without work succeed (`audit.reward_attacks`), and the family's own policy "cheat" if it
    has one."""
    counts = []
    cheat = player.find_policy("cheat")
    for kind, attack in {**ATTACKS, **({"cheat": cheat} if cheat else {})}.items():
        outcomes = await player.play_each(tasks, attack)
        values = [outcome.success > 0.5 for outcome in outcomes if outcome.success is not None]
        counts.append(KindCount(kind=kind, is_right=False, accepted=Rate(hits=sum(values), count=len(values))))
    return tuple(counts)


async def try_near_plays(player: Player, outcomes: Sequence[Outcome]) -> tuple[KindCount, ...]:
    """Perturb the replies with which the oracle succeeded (`list_near_plays`); an episode that wants more replies than
    are left is scored as one that a limit ends."""
    played = [outcome.played for outcome in outcomes if outcome.played is not None and outcome.success]
    cases: list[tuple[str, bool | None, bool]] = []
    for place, (episode, source) in enumerate(zip(played, [*played[1:], *played[:1]], strict=True)):
        others = source.replies if source.task.id != episode.task.id else ()
        for play in list_near_plays(episode.replies, others):
            limit = len(play.replies)
            outcome = await player.play(episode.task, Repeated(play.replies), seed=place, max_turns=limit)
            if outcome.success is not None:
                cases.append((play.kind, play.is_right, outcome.success > 0.5))
    return _count_kinds(cases)


async def ask_opinions(family: EnvironmentFamily, outcomes: Sequence[Outcome]) -> Agreement | None:
    """Ask the family's second opinion about the oracle's successes; None if it has none."""
    if not isinstance(family, SecondOpinion):
        return None
    by, agreed, asked, problems = "", 0, 0, list[str]()
    for outcome in outcomes:
        if outcome.played is None or not outcome.success:
            continue
        try:
            with boundary(EnvironmentFault, "give_opinion"):
                opinion = await family.give_opinion(outcome.task, outcome.played.replies)
        except TurnwiseError:
            continue  # no answer is no opinion, as in an audit
        if opinion is None:
            continue
        by, asked = opinion.by, asked + 1
        agreed += opinion.problem is None
        if opinion.problem is not None:
            problems.append(f"task {outcome.task.id}: {opinion.problem}")
    rate = Rate(hits=agreed, count=asked)
    return Agreement(by=by, same=rate, examples=tuple(problems[:NUM_EXAMPLES])) if asked else None


def _count_kinds(cases: Iterable[tuple[str, bool | None, bool]]) -> tuple[KindCount, ...]:
    asked: Counter[tuple[str, bool | None]] = Counter()
    accepted: Counter[tuple[str, bool | None]] = Counter()
    for kind, is_right, won in cases:
        asked[kind, is_right] += 1
        accepted[kind, is_right] += won
    return tuple(
        KindCount(kind=kind, is_right=is_right, accepted=Rate(hits=accepted[kind, is_right], count=count))
        for (kind, is_right), count in asked.items()
    )
