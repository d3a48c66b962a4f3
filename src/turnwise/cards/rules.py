"""The rules by which a card says whether a number can be believed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from turnwise.cards.facts import Facts
from turnwise.cards.measured import KindCount, Measured, Rate
from turnwise.cards.sizes import compute_half_width, compute_visible_difference

MAX_HALF_WIDTH = 0.1
MAX_GOLD_ERROR = 0.05
MAX_INVALID = 0.05
MAX_GRADER_ERROR = 0.05
"""On near-misses of the tasks' own gold answers."""
MAX_HAND_ERROR = 0.25
"""On hand cases, whose kinds are chosen because graders are known to err in them."""
MAX_ATTACK = 0.4
"""As in `testing.environment_check`: declining may be right on some tasks."""
MIN_HEADROOM = 0.2
MIN_TOLD_FLOOR = 0.1
"""Success without the ability from which the first line tells it."""
MAX_SAME_TASK = 0.01
MAX_LOOKED_UP = 0.1
"""Above random play."""

Word = Literal["believe", "do not believe", "cannot say"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The first line of a card."""

    word: Word
    text: str
    """For what, or why not."""

    @property
    def line(self) -> str:
        """The line."""
        return f"{self.word}: {self.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule."""

    name: str
    states: str
    """When a number is not believed, for the page."""
    breaks: Callable[[Facts, Measured], Iterator[str]]
    """Yields why this recipe's is not."""


def decide(facts: Facts, measured: Measured) -> Verdict:
    """Judge by `RULES`. If no episode could be played, nothing is claimed."""
    if unbuilt := measured.missing.get("environment"):
        return Verdict(word="cannot say", text=f"nothing could be measured here, {unbuilt}")
    reasons = [reason for rule in RULES for reason in rule.breaks(facts, measured)]
    if reasons:
        return Verdict(word="do not believe", text=f"{facts.number}, because {'; '.join(reasons)}")
    return Verdict(word="believe", text=_say_for_what(facts, measured))


def _say_for_what(facts: Facts, measured: Measured) -> str:
    n = measured.tasks.distinct
    text = f"{facts.number} on {n:,} held-out tasks, to within {100 * compute_half_width(n):.1f} points"
    visible = compute_visible_difference(n)
    if visible is not None:
        text += f" and for differences from {100 * visible:.1f} points up"
    overlap = measured.overlap
    if overlap is not None and overlap.same_template > 0.5:
        text += ", for new tasks of the kinds that are trained"
    text += f", as a measure of {facts.ability or 'what nobody has put in words (card.ability)'}"
    what, floor = _find_floor(measured)
    if floor > MIN_TOLD_FLOOR:
        text += f"; {what} gets {floor:.0%}"
    _, refused = count_errors(measured.hand)
    if refused.count and refused.hits / refused.count > MAX_HAND_ERROR:
        text += f"; answers in other spellings are refused ({name_worst(measured.hand, is_right=True)})"
    return text


def _too_few(facts: Facts, measured: Measured) -> Iterator[str]:
    n = measured.tasks.distinct
    if facts.heldout_tasks == 0:
        yield "no held-out task is evaluated (evaluate.tasks is 0)"
    elif n == 0:
        yield "the held-out split is empty"
    elif compute_half_width(n) > MAX_HALF_WIDTH:
        yield f"{n} held-out tasks leave an interval of ±{100 * compute_half_width(n):.1f} points"


def _wrong_gold(facts: Facts, measured: Measured) -> Iterator[str]:
    if not measured.tasks.distinct:
        return
    oracle = measured.policies.get("oracle")
    if oracle is None and not (measured.gold and measured.gold.count):
        yield "it has no oracle and no gold answers, so nothing shows that the tasks can be solved"
    elif oracle is not None and oracle.success.count and _is_below(oracle.success, 1 - MAX_GOLD_ERROR):
        yield f"the oracle solves {_show(oracle.success)} of the tasks"
    if measured.gold is not None and _is_below(measured.gold, 1 - MAX_GOLD_ERROR):
        yield f"the tasks' own gold answers are accepted in {_show(measured.gold)}"
    if measured.opinions is not None and _is_below(measured.opinions.same, 1 - MAX_GOLD_ERROR):
        yield f"{measured.opinions.by} agrees with {_show(measured.opinions.same)} of the oracle's successes"


def _broken(facts: Facts, measured: Measured) -> Iterator[str]:
    for name, result in measured.policies.items():
        played = result.success.count + result.invalid
        if played and result.invalid / played > MAX_INVALID:
            yield f"{result.invalid} of {played} episodes of {name!r} have no reward ({result.problem})"
            return
    if measured.repeated:
        yield f"the same episode played twice differs: {measured.repeated}"
    if measured.regraded is not None and measured.regraded.hits:
        yield f"the same replies got another reward in {_show(measured.regraded)}"
    oracle = measured.policies.get("oracle")
    if oracle is not None and oracle.success.count and oracle.number is None:
        yield f"rewards have no part {facts.number!r} (card.number)"


def _bad_grader(facts: Facts, measured: Measured) -> Iterator[str]:
    paid, refused = count_errors(measured.near)
    if paid.count and paid.hits / paid.count > MAX_GRADER_ERROR:
        yield f"the grader pays {_show(paid)} of the wrong near-misses ({name_worst(measured.near, is_right=False)})"
    if refused.count and refused.hits / refused.count > MAX_GRADER_ERROR:
        worst = name_worst(measured.near, is_right=True)
        yield f"the grader refuses {_show(refused)} of the right near-misses ({worst})"
    paid, _ = count_errors(measured.hand)
    if paid.count and paid.hits / paid.count > MAX_HAND_ERROR:
        yield f"the grader pays {_show(paid)} of the wrong hand cases ({name_worst(measured.hand, is_right=False)})"
    for attack in measured.attacks:
        if (attack.accepted.share or 0.0) > MAX_ATTACK:
            yield f"the attack {attack.kind!r} succeeds on {_show(attack.accepted)} of the tasks"


def _no_headroom(facts: Facts, measured: Measured) -> Iterator[str]:
    oracle, random = measured.policies.get("oracle"), measured.policies.get("random")
    if oracle is None or random is None or not oracle.success.count or not random.success.count:
        return
    what, floor = _find_floor(measured)
    room = (oracle.success.share or 0.0) - floor
    if room < MIN_HEADROOM:
        yield f"the oracle is only {100 * room:.0f} points above {what}"


def _seen_before(facts: Facts, measured: Measured) -> Iterator[str]:
    overlap = measured.overlap
    if overlap is None:
        return
    if overlap.same_task > MAX_SAME_TASK:
        yield f"{overlap.same_task:.1%} of the held-out tasks are training tasks"
    if (overlap.looked_up or 0.0) > _find_chance(measured) + MAX_LOOKED_UP:
        yield f"a table of training prompts and answers is right on {overlap.looked_up:.1%} of the held-out tasks"


RULES: Sequence[Rule] = (
    Rule(
        name="enough tasks",
        states=f"the interval at a success of 50% is wider than ±{100 * MAX_HALF_WIDTH:g} points, or no task is "
        "evaluated",
        breaks=_too_few,
    ),
    Rule(
        name="right gold answers",
        states=f"the oracle fails on more than {MAX_GOLD_ERROR:.0%} of the tasks, or gold answers or a second checker "
        "contradict as often, or there is neither oracle nor gold answer",
        breaks=_wrong_gold,
    ),
    Rule(
        name="the same each time",
        states=f"more than {MAX_INVALID:.0%} of a policy's episodes have no reward, an episode played twice differs, "
        "replies said twice get two rewards, or the rewards have no number of the name that the recipe reports",
        breaks=_broken,
    ),
    Rule(
        name="a grader that sees",
        states=f"the grader pays more than {MAX_GRADER_ERROR:.0%} of the wrong near-misses or refuses as many of the "
        f"right ones, or pays more than {MAX_HAND_ERROR:.0%} of the wrong hand cases, or a reply without work succeeds "
        f"on more than {MAX_ATTACK:.0%} of the tasks",
        breaks=_bad_grader,
    ),
    Rule(
        name="headroom",
        states=f"the oracle is less than {100 * MIN_HEADROOM:.0f} points above random play, or above a reply without "
        "work",
        breaks=_no_headroom,
    ),
    Rule(
        name="not trained on",
        states=f"more than {MAX_SAME_TASK:.0%} of the held-out tasks are training tasks, or a table of training "
        f"prompts and their answers is right on over {100 * MAX_LOOKED_UP:.0f} points more of them than random play",
        breaks=_seen_before,
    ),
)


def count_errors(kinds: Sequence[KindCount]) -> tuple[Rate, Rate]:
    """Return the wrong answers that were paid, and the right ones that were refused."""
    wrong = [kind.accepted for kind in kinds if kind.is_right is False]
    right = [kind.accepted for kind in kinds if kind.is_right]
    paid = Rate(hits=sum(each.hits for each in wrong), count=sum(each.count for each in wrong))
    accepted, asked = sum(each.hits for each in right), sum(each.count for each in right)
    return paid, Rate(hits=asked - accepted, count=asked)


def name_worst(kinds: Sequence[KindCount], *, is_right: bool) -> str:
    """Return the up to three kinds with the largest share of errors."""

    def share(kind: KindCount) -> float:
        accepted = kind.accepted.share or 0.0
        return 1 - accepted if is_right else accepted

    wanted = [kind for kind in kinds if kind.is_right is is_right and kind.accepted.count]
    worst = sorted((kind for kind in wanted if share(kind) > 0), key=lambda kind: (-share(kind), kind.kind))
    return ", ".join(kind.kind for kind in worst[:3])


def _find_chance(measured: Measured) -> float:
    """Success of random play; 0 without it."""
    random = measured.policies.get("random")
    return (random.success.share or 0.0) if random is not None else 0.0


def _find_floor(measured: Measured) -> tuple[str, float]:
    """What gets furthest without the ability, random play or a reply without work, and how far."""
    attacks = [(f"the reply without work {each.kind!r}", each.accepted.share or 0.0) for each in measured.attacks]
    return max([("random play", _find_chance(measured)), *attacks], key=lambda pair: pair[1])


def _is_below(rate: Rate, share: float) -> bool:
    return rate.count > 0 and rate.hits / rate.count < share


def _show(rate: Rate) -> str:
    return f"{rate.share or 0.0:.0%} ({rate.hits:g} of {rate.count})"
