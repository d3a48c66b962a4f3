"""A card: facts, measurement and verdict, as a page and as data; and what a stored page says of how it was made."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from turnwise.cards.facts import Facts
from turnwise.cards.measured import Agreement, KindCount, Measured, Rate, Timing
from turnwise.cards.rules import Verdict, count_errors, decide, name_worst
from turnwise.cards.sizes import compute_half_width, compute_power_of, compute_visible_difference
from turnwise.evaluation.power import POWER

SUFFIX = ".card.md"
"""A recipe's card lies beside it: `tiny.card.md` beside `tiny.toml`."""
_MADE = re.compile(r"digest `(\w+)`, probe `(\w*)`, (\d+) tasks by each policy")


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """The card of a recipe."""

    facts: Facts
    measured: Measured
    timing: Timing
    num_played: int
    """Tasks that each policy played."""

    @property
    def verdict(self) -> Verdict:
        """The first line."""
        return decide(self.facts, self.measured)

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "verdict": self.verdict.word,
            "line": self.verdict.line,
            "digest": self.facts.compute_digest(),
            "facts": asdict(self.facts),
            "measured": self.measured.to_json(),
            "timing": asdict(self.timing),
            "num_played": self.num_played,
        }

    def to_page(self) -> str:
        """Return it as Markdown; lines with times differ from run to run, all others do not."""
        facts, measured = self.facts, self.measured
        lines = [
            self.verdict.line,
            "",
            f"# Card of {facts.recipe}",
            "",
            f"Made by `turnwise card {facts.recipe}`: digest `{facts.compute_digest()}`, probe `{measured.probe}`, "
            f"{self.num_played} tasks by each policy. What the lines mean and when a number is believed is in "
            "docs/cards.md of Turnwise.",
            "",
        ]
        if not measured.policies:
            return "\n".join([*lines, *self._tell_nothing()]) + "\n"
        lines += _write_table("trait", self._list_traits())
        lines += ["", *_write_table("property", self._list_properties())]
        lines += ["", *_write_table("shared with training", self._list_overlap())]
        for title, kinds in (("near-miss", measured.near), ("hand case", measured.hand)):
            if shown := _list_kinds(kinds, all_of_them=title == "near-miss"):
                lines += ["", *_write_table(title, shown)]
        return "\n".join(lines) + "\n"

    def _tell_nothing(self) -> list[str]:
        facts = self.facts
        environments = ", ".join(map(str, facts.environment))
        return [
            f"No episode was played. Environment: {environments}. Held-out tasks: {facts.heldout_tasks:,}. Ability: "
            f"{facts.ability or 'nobody said'}."
        ]

    def _list_traits(self) -> list[tuple[str, str]]:
        facts, measured = self.facts, self.measured
        tasks, n = measured.tasks, measured.tasks.distinct
        attempts = f", {facts.samples} attempts at each" if facts.samples > 1 else ""
        left = f"; {tasks.copies} copies and {tasks.left_out} that cannot be built are left out ({tasks.example})"
        number = "" if facts.number == "success" else ", named in the recipe (`card.number`)"
        return [
            (
                "1 size",
                f"{n:,} different held-out tasks{attempts}; 95% interval at a success of 50%: ±"
                f"{100 * compute_half_width(n):.1f} points" + (left if tasks.copies or tasks.left_out else ""),
            ),
            ("2 gold answers", self._tell_gold()),
            ("3 one number", f"{facts.number}{number}"),
            ("4 time", _tell_time(self.timing)),
            ("4 same bits twice", measured.repeated or "yes: episodes of oracle and random, played twice"),
            ("5 ability", facts.ability or "nobody said (`card.ability`)"),
            ("6 grader on hand cases", _tell_errors(measured.hand, measured.missing.get("hand", ""))),
            ("6 grader on near-misses", _tell_errors(measured.near, measured.missing.get("gold", ""))),
            ("6 replies without work", _tell_attacks(measured.attacks)),
            ("7 headroom", self._tell_headroom()),
            (
                "7 power",
                f"{compute_power_of(n, 0.02):.0%} to see +2 points from 50% with two evaluations of {n:,} tasks; "
                f"{POWER:.0%} from {_points(compute_visible_difference(n))} up (unpaired)",
            ),
        ]

    def _tell_gold(self) -> str:
        measured = self.measured
        oracle = measured.policies.get("oracle")
        first = f"oracle {oracle.success.describe()}" if oracle else "no oracle"
        if oracle and oracle.invalid:
            first += f", {oracle.invalid} without a reward ({oracle.problem})"
        second = [f"gold answers stated alone {measured.gold.describe()}"] if measured.gold else []
        if measured.disagreements:
            second.append(f"the two differ on {', '.join(measured.disagreements[:5])}")
        if measured.opinions:
            second.append(f"{measured.opinions.by} agrees with {measured.opinions.same.describe()}")
        missing = measured.missing.get("gold", "")
        return "; ".join([first, *(second or [f"no second oracle: {missing}"])])

    def _tell_headroom(self) -> str:
        measured = self.measured
        parts = [f"{name} {result.success.describe()}" for name, result in measured.policies.items()]
        parts += [f"no {name}: {why}" for name, why in measured.missing.items() if name in ("oracle", "random")]
        if self.facts.number != "success":
            numbers = [(name, result.number) for name, result in measured.policies.items()]
            shown = ", ".join(f"{name} {number:.3f}" for name, number in numbers if number is not None)
            parts.append(f"{self.facts.number}: {shown}")
        return "; ".join(parts)

    def _list_properties(self) -> list[tuple[str, str]]:
        measured, timing, missing = self.measured, self.timing, self.measured.missing
        objective = [_tell_agreement(each) for each in (measured.agreement, measured.opinions) if each]
        judged = f"; judges score: {', '.join(self.facts.judges)}" if self.facts.judges else ""
        paid, refused = count_errors(measured.near)
        perturbed = f"; of perturbed answers {paid.hits:g} of {paid.count} wrong ones paid, {refused.hits:g} of "
        noise = (
            f"{measured.regraded.describe()} of replies graded twice got another reward" if measured.regraded else ""
        )
        continuity = measured.continuity
        return [
            ("objective", "; ".join(objective or [f"no second grader: {missing.get('gold', '')}"]) + judged),
            (
                "fast",
                "not measured" if timing.score_ms is None else f"time: {timing.score_ms:.2f} ms to score (median)",
            ),
            (
                "scalable",
                f"not measured: {missing.get('scaling', '')}"
                if timing.checks_per_s is None
                else f"time: {timing.checks_per_s:,.0f} episodes played and scored per second, 32 at a time",
            ),
            ("low noise", noise + (f"{perturbed}{refused.count} right ones refused" if paid.count else "")),
            (
                "continuous",
                f"not measured: {missing.get('continuity', 'no group has two scored attempts')}"
                if continuity is None
                else f"{continuity.distinct_rewards} distinct rewards; groups with signal "
                f"{continuity.with_signal.describe()}; attempts: {continuity.source}",
            ),
        ]

    def _list_overlap(self) -> list[tuple[str, str]]:
        overlap = self.measured.overlap
        if overlap is None:
            return [("tasks", f"not measured: {self.measured.missing.get('overlap', '')}")]
        drawn = f"{overlap.heldout:,} held-out with {overlap.train:,} training tasks"
        table = overlap.looked_up
        grams = "no prompt has one of its own" if overlap.same_grams is None else f"{overlap.same_grams:.1%}"
        return [
            ("whole tasks", f"{overlap.same_task:.1%} have prompt and content of a training task ({drawn})"),
            (
                "prompts",
                f"{overlap.same_prompt:.1%} have the prompt of one"
                + ("" if table is None else f"; a table of training prompts and answers is right on {table:.1%}"),
            ),
            ("entities", "no names" if overlap.same_names is None else f"{overlap.same_names:.1%} of the names"),
            ("runs of 8 words", grams),
            ("templates", f"{overlap.same_template:.1%}; {overlap.templates:,} different ones"),
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """What the page of a card says of itself."""

    line: str
    digest: str
    probe: str
    num_played: int


def read_page(text: str) -> Stored | None:
    """Read a card's page; None if it is none."""
    made = _MADE.search(text)
    if made is None:
        return None
    return Stored(line=text.partition("\n")[0], digest=made[1], probe=made[2], num_played=int(made[3]))


def _write_table(title: str, rows: Sequence[tuple[str, str]]) -> list[str]:
    return [f"| {title} | |", "|---|---|", *(f"| {name} | {_escape(text)} |" for name, text in rows)]


def _escape(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _points(share: float | None) -> str:
    return "no difference" if share is None else f"{100 * share:.1f} points"


def _tell_time(timing: Timing) -> str:
    if timing.seconds_per_100 is None:
        return "not measured"
    return f"time: {timing.seconds_per_100:.2f} s for 100 tasks by a scripted policy, without a model"


def _tell_errors(kinds: Sequence[KindCount], missing: str) -> str:
    if not kinds:
        return f"not measured: {missing}"
    paid, refused = count_errors(kinds)
    worst = [name_worst(kinds, is_right=False), name_worst(kinds, is_right=True)]
    told = [f" ({name})" if name else "" for name in worst]
    return f"false positives {paid.describe()}{told[0]}; false negatives {refused.describe()}{told[1]}"


def _tell_attacks(attacks: Sequence[KindCount]) -> str:
    return "; ".join(f"{each.kind} {_count(each.accepted)}" for each in attacks)


def _tell_agreement(agreement: Agreement) -> str:
    told = f"{agreement.by} agrees in {agreement.same.describe()}"
    return f"{told}, not on {', '.join(agreement.examples[:3])}" if agreement.examples else told


def _count(rate: Rate) -> str:
    return f"{rate.hits:g} of {rate.count}"


def _list_kinds(kinds: Sequence[KindCount], *, all_of_them: bool) -> list[tuple[str, str]]:
    """Rows of the kinds; of hand cases, those in which the grader errs."""
    truth = {True: "right", False: "wrong", None: "either"}
    shown = [
        kind
        for kind in kinds
        if all_of_them or (kind.is_right is not None and kind.accepted.share != float(kind.is_right))
    ]
    return [(kind.kind, f"{truth[kind.is_right]}: accepted {_count(kind.accepted)}") for kind in shown]
