"""Measures everything that a card says, with scripted policies and no model."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from turnwise.cards.facts import Facts
from turnwise.cards.grading import (
    GoldTrial,
    ask_opinions,
    try_attacks,
    try_gold_answers,
    try_hand_cases,
    try_near_plays,
)
from turnwise.cards.measured import Continuity, KindCount, Measured, PolicyResult, Rate, TaskCounts, Timing
from turnwise.cards.overlap import Asked, Overlap, compare_tasks
from turnwise.cards.playing import Mixed, Outcome, Player, take_number
from turnwise.core.errors import DataError, TurnwiseError
from turnwise.core.messages import to_plain_text
from turnwise.core.protocols import EnvironmentFamily, GoldAnswers, ScriptedPolicy, Split
from turnwise.core.types import Task
from turnwise.environments.draws import LeftOut, try_task
from turnwise.environments.episodes import Repeated, find_difference

SIZES = ((0.03, 60), (0.15, 24), (0.6, 8), (float("inf"), 4))
"""Seconds of an episode up to which that many tasks are played by each policy."""
NUM_GRADED = 20
"""Tasks whose grader is tried, at most half of those that are played: near-misses, replies without work, replies said
twice."""
COMPARED = ((0.005, 1000), (0.05, 200), (float("inf"), 40))
"""Seconds of building a task up to which that many training tasks of the warm-up, and as many of RL, are compared with
held-out tasks."""
BUILD_S = 120.0
"""Seconds after which no further held-out task is built, and the card says so instead of measuring for an hour."""
NUM_PROBED = 4
"""Tasks whose rewards are in the probe."""
NUM_GROUPS = 8
"""Groups whose rewards are looked at for signal, at most half as many as tasks are played."""
GROUP_SIZE = 4
"""Attempts of such a group, at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOutTasks:
    """The tasks of an evaluation, and how they were found."""

    tasks: list[Task]
    counts: TaskCounts


def measure(
    build: Callable[[], EnvironmentFamily],
    facts: Facts,
    *,
    num_played: int | None = None,
    continuity: Continuity | None = None,
) -> tuple[Measured, Timing, int]:
    """Measure a recipe's environment; returns the number of tasks that each policy played, too.

    `num_played` None chooses by `SIZES`. `continuity` is that of a run, None measures it with scripted attempts. What
    the family raises is told in `Measured.missing`; nothing is raised. Runs an event loop of its own.
    """
    nothing = Timing(seconds_per_100=None, score_ms=None, checks_per_s=None)
    try:
        family = build()
        heldout = take_heldout(family, facts.heldout_tasks)
    except TurnwiseError as cause:
        return _empty(TaskCounts(asked=0, distinct=0, copies=0, left_out=0, example=""), str(cause)), nothing, 0
    if not heldout.tasks:
        return _empty(heldout.counts, heldout.counts.example), nothing, 0
    return asyncio.run(_Measurement(family, facts, heldout, num_played, continuity).run())


def probe(build: Callable[[], EnvironmentFamily], facts: Facts) -> str:
    """Return `Measured.probe` alone, in a fraction of the time; empty if no episode can be played."""
    try:
        family = build()
        tasks = take_heldout(family, min(NUM_PROBED, facts.heldout_tasks)).tasks
    except TurnwiseError:
        return ""
    return asyncio.run(_probe(Player(family, facts.max_turns), tasks))


def take_heldout(family: EnvironmentFamily, asked: int) -> HeldOutTasks:
    """Build the first `asked` held-out tasks as an evaluation does: fewer if the split ends, copies and tasks that
    cannot be built counted. Raises DataError if it takes longer than `BUILD_S`."""
    found: dict[str, Task] = {}
    copies = left_out = index = 0
    examples: list[str] = []
    latest = time.monotonic() + BUILD_S
    for index in range(asked):
        if time.monotonic() > latest:
            raise DataError(
                f"only {index} of {asked} held-out tasks were built in {BUILD_S:g} s; measure again on a machine that "
                "is less busy, or with a smaller evaluate.tasks"
            )
        try:
            task = try_task(family, "heldout", index)
        except IndexError:
            break
        if isinstance(task, LeftOut):
            left_out += 1
            examples.append(task.why)
        elif task.id in found:
            copies += 1
            examples.append(f"task {index} is a copy")
        else:
            found[task.id] = task
    counts = TaskCounts(
        asked=asked, distinct=len(found), copies=copies, left_out=left_out, example=examples[0] if examples else ""
    )
    return HeldOutTasks(tasks=[*found.values()], counts=counts)


def _empty(counts: TaskCounts, problem: str) -> Measured:
    return Measured(
        tasks=counts,
        policies={},
        gold=None,
        disagreements=(),
        opinions=None,
        repeated="",
        regraded=None,
        hand=(),
        near=(),
        attacks=(),
        agreement=None,
        overlap=None,
        continuity=None,
        missing={"environment": problem} if problem else {},
        probe="",
    )


class _Measurement:
    """One measurement in progress."""

    def __init__(
        self,
        family: EnvironmentFamily,
        facts: Facts,
        heldout: HeldOutTasks,
        num_played: int | None,
        continuity: Continuity | None,
    ) -> None:
        self.family, self.facts, self.heldout = family, facts, heldout
        self.player = Player(family, facts.max_turns)
        self.num_played, self.continuity = num_played, continuity
        self.num_graded = NUM_GRADED
        self.missing: dict[str, str] = {}

    async def run(self) -> tuple[Measured, Timing, int]:
        first, speaker = self.heldout.tasks[0], self._find_speaker()
        if speaker is None:
            problem = 'its family has neither a policy "oracle" nor "random"'
            return _empty(self.heldout.counts, problem), _no_time(), 0
        trial = await self.player.play(first, speaker)
        if trial.played is None:
            return _empty(self.heldout.counts, trial.problem), _no_time(), 0
        size = self.num_played or await self._choose_size(speaker)
        tasks = self.heldout.tasks[:size]
        self.num_graded = min(NUM_GRADED, max(2, len(tasks) // 2))
        outcomes, taken = await self._play_policies(tasks)
        oracle = outcomes.get("oracle", [])
        gold = await self._try_gold(tasks[: self.num_graded])
        attacks = await try_attacks(self.player, tasks[: self.num_graded])
        plays = await try_near_plays(self.player, oracle[: self.num_graded])
        repeated, regraded = await self._repeat(outcomes)
        measured = Measured(
            tasks=self.heldout.counts,
            policies={name: self._summarise(each) for name, each in outcomes.items()},
            gold=Rate(hits=sum(gold.accepted.values()), count=len(gold.accepted)) if gold else None,
            disagreements=_disagree(oracle, gold),
            opinions=await ask_opinions(self.family, oracle),
            repeated=repeated,
            regraded=regraded,
            hand=self._try_hand(),
            near=(*(gold.near if gold else ()), *plays),
            attacks=attacks,
            agreement=gold.agreement if gold and gold.agreement.same.count else None,
            overlap=self._compare(),
            continuity=self.continuity or await self._find_signal(tasks),
            missing=self.missing,
            probe=await _probe(self.player, self.heldout.tasks[:NUM_PROBED]),
        )
        return measured, await self._time(outcomes, taken), len(tasks)

    async def _choose_size(self, speaker: ScriptedPolicy) -> int:
        """By the shortest of a few episodes, as the first ones also load what all share."""
        seconds = []
        for task in self.heldout.tasks[:3]:
            started = time.perf_counter()
            await self.player.play(task, speaker)
            seconds.append(time.perf_counter() - started)
        return next(size for limit, size in SIZES if min(seconds) <= limit)

    def _find_speaker(self) -> ScriptedPolicy | None:
        return self.player.find_policy("oracle") or self.player.find_policy("random")

    async def _play_policies(self, tasks: Sequence[Task]) -> tuple[dict[str, list[Outcome]], float]:
        """Outcomes by policy, and the seconds that the first of them took."""
        outcomes: dict[str, list[Outcome]] = {}
        taken = 0.0
        for name in dict.fromkeys(filter(None, ("oracle", "random", self.facts.demonstrator))):
            policy = self.player.find_policy(name)
            if policy is None:
                self.missing[name] = f"the family has no policy {name!r}"
                continue
            started = time.perf_counter()
            outcomes[name] = await self.player.play_each(tasks, policy)
            taken = taken or time.perf_counter() - started
        return outcomes, taken

    def _summarise(self, outcomes: Sequence[Outcome]) -> PolicyResult:
        scored = [each for each in outcomes if each.success is not None]
        numbers = [value for each in scored if (value := take_number(each, self.facts.number)) is not None]
        return PolicyResult(
            success=Rate(hits=sum(each.success or 0.0 for each in scored), count=len(scored)),
            number=sum(numbers) / len(numbers) if numbers else None,
            invalid=len(outcomes) - len(scored),
            problem=next((each.problem for each in outcomes if each.success is None), ""),
        )

    async def _try_gold(self, tasks: Sequence[Task]) -> GoldTrial | None:
        try:
            gold = await try_gold_answers(self.player, tasks)
        except TurnwiseError as cause:
            self.missing["gold"] = str(cause)
            return None
        if gold is None:
            self.missing["gold"] = "the family names no gold answers"
        elif not gold.accepted:
            self.missing["gold"] = "no task has a gold answer"
        return gold

    def _try_hand(self) -> tuple[KindCount, ...]:
        try:
            hand = try_hand_cases(self.family)
        except TurnwiseError as cause:
            self.missing["hand"] = str(cause)
            return ()
        if not hand:
            self.missing["hand"] = "the family has no hand cases of its grader"
        return hand

    async def _repeat(self, outcomes: dict[str, list[Outcome]]) -> tuple[str, Rate]:
        """What differs when the first episodes of each policy are played again, and how often the same replies, said to
        a fresh environment, get another reward."""
        differences: list[str] = []
        again = changed = 0
        for name in ("oracle", "random"):
            policy = self.player.find_policy(name) if name in outcomes else None
            if policy is None:
                continue
            for seed, outcome in enumerate(outcomes[name][: self.num_graded]):
                one = outcome.played
                if one is None:
                    continue
                other = (await self.player.play(outcome.task, policy, seed=seed)).played
                if other is None or (difference := find_difference(one, other)):
                    what = "it could not be played again" if other is None else difference
                    differences.append(f"{name!r} on task {outcome.task.id}, {what}")
                told = await self.player.play(
                    outcome.task, Repeated(one.replies), seed=seed, max_turns=max(1, len(one.replies))
                )
                again += 1
                changed += told.played is None or told.played.rewards != one.rewards
        return (differences[0] if differences else ""), Rate(hits=changed, count=again)

    def _compare(self) -> Overlap | None:
        warm_up, rl = self.facts.warm_up_tasks, self.facts.rl_tasks
        started = time.perf_counter()
        first = _take_some(self.family, "train", range(4))
        seconds = (time.perf_counter() - started) / max(1, len(first))
        most = next(most for limit, most in COMPARED if seconds <= limit)
        train = _take_some(self.family, "train", [*range(min(warm_up, most)), *range(warm_up, warm_up + min(rl, most))])
        if not train:
            self.missing["overlap"] = "there is no training task"
            return None
        try:
            asked = [self._describe(task) for task in self.heldout.tasks]
            return compare_tasks(asked, [self._describe(task) for task in train])
        except TurnwiseError as cause:
            self.missing["overlap"] = str(cause)
            return None

    def _describe(self, task: Task) -> Asked:
        family = self.family
        gold = family.gold_answer(task) if isinstance(family, GoldAnswers) else ""
        payload = {key: value for key, value in task.payload.items() if key != "split"}
        content = json.dumps(payload, sort_keys=True, ensure_ascii=False)
        return Asked(prompt="\n".join(map(to_plain_text, task.prompt)), content=content, gold=gold)

    async def _find_signal(self, tasks: Sequence[Task]) -> Continuity | None:
        oracle, random = self.player.find_policy("oracle"), self.player.find_policy("random")
        if oracle is None or random is None:
            self.missing["continuity"] = "a mixed policy needs both oracle and random"
            return None
        size = max(2, min(self.facts.group_size, GROUP_SIZE))
        groups = []
        for number, task in enumerate(tasks[: min(NUM_GROUPS, self.num_graded)]):
            seeds = range(number * size, (number + 1) * size)
            attempts = [await self.player.play(task, Mixed(oracle, random), seed=seed) for seed in seeds]
            groups.append([each.reward for each in attempts if each.reward is not None])
        return summarise_rewards(groups, "mixed")

    async def _time(self, outcomes: dict[str, list[Outcome]], taken: float) -> Timing:
        played = [each.played for each in next(iter(outcomes.values()), []) if each.played is not None]
        if not played:
            return _no_time()
        together = [(each.task, Repeated(each.replies)) for each in played[:32]]
        started = time.perf_counter()
        try:
            checks = await self.player.play_together(together) / (time.perf_counter() - started)
        except (TurnwiseError, TimeoutError) as cause:
            self.missing["scaling"] = str(cause)
            checks = None
        return Timing(
            seconds_per_100=100 * taken / len(played),
            score_ms=1000 * median(each.seconds[-1] for each in played),
            checks_per_s=checks,
        )


def summarise_rewards(groups: Sequence[Sequence[float]], source: str) -> Continuity | None:
    """Count distinct rewards, and groups of at least two attempts whose rewards are not all equal; None if no group has
    two."""
    compared = [group for group in groups if len(group) > 1]
    if not compared:
        return None
    return Continuity(
        source=source,
        distinct_rewards=len({round(reward, 9) for group in compared for reward in group}),
        with_signal=Rate(hits=sum(len(set(group)) > 1 for group in compared), count=len(compared)),
    )


def _take_some(family: EnvironmentFamily, split: Split, indices: Sequence[int]) -> list[Task]:
    tasks = []
    for index in indices:
        try:
            task = try_task(family, split, index)
        except IndexError:
            break
        if not isinstance(task, LeftOut):
            tasks.append(task)
    return tasks


def _disagree(oracle: Sequence[Outcome], gold: GoldTrial | None) -> tuple[str, ...]:
    if gold is None:
        return ()
    return tuple(
        each.task.id
        for each in oracle
        if each.success is not None and gold.accepted.get(each.task.id, each.success > 0.5) != (each.success > 0.5)
    )


async def _probe(player: Player, tasks: Sequence[Task]) -> str:
    said = []
    for name in ("oracle", "random"):
        policy = player.find_policy(name)
        for seed, task in enumerate(tasks):
            outcome = await player.play(task, policy, seed=seed) if policy is not None else None
            said.append([name, task.id, outcome and outcome.success, outcome and outcome.reward])
    return hashlib.sha256(json.dumps(said).encode()).hexdigest()[:16]


def _no_time() -> Timing:
    return Timing(seconds_per_100=None, score_ms=None, checks_per_s=None)
