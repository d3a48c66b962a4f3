"""Search with a trained policy: trees on training tasks teach a value model, the value model guides searches on
held-out tasks, and the best ways found teach the policy (ReST-MCTS*, arXiv 2406.03816: one round of self-training)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from turnwise.batching.samples import to_samples
from turnwise.building.resolved import resolve
from turnwise.building.trainer import build_packing, build_trainer
from turnwise.core.batch import TrainingBatch
from turnwise.core.errors import DataError
from turnwise.core.paths import split_paths
from turnwise.core.seeds import derive_seed
from turnwise.core.types import Draw, Sample, Scored, TrajectoryGroup
from turnwise.evaluation.ranking import compute_auc
from turnwise.evaluation.summary import Summary, is_right, summarise
from turnwise.rollout.attempt import Sampling
from turnwise.runs.build import System
from turnwise.runs.data_files import check_data_files
from turnwise.runs.evaluate import load_trained_system
from turnwise.runs.heldout import heldout_draws
from turnwise.runs.openings import take_task
from turnwise.runs.sft import first_rl_task, iterate_batches
from turnwise.runs.weights import build_weight_sync
from turnwise.store.checkpoint_folder import checkpoint_writer
from turnwise.store.run_folder import RunFolder
from turnwise.store.trajectories import save_groups
from turnwise.training.critic import build_critic
from turnwise_worlds.planning.comparison import (
    Point,
    pick_by_scores,
    pick_most_common,
    pick_right,
    rate_samples,
    rate_searches,
    score_ends,
)
from turnwise_worlds.planning.record import count_tokens, to_group
from turnwise_worlds.planning.search import Proposer, Search, run_searches
from turnwise_worlds.planning.targets import Kind
from turnwise_worlds.planning.value_model import LearnedValue, fit_value, label_states
from turnwise_worlds.planning.values import (
    CheckedEnds,
    ExactValue,
    OutcomeValue,
    RandomValue,
    SolvedEnvironment,
    ValueFunction,
)

ARMS = {
    "learned": "learned value",
    "random": "random value",
    "learned_checked": "learned value, ends checked",
    "checked": "no value, ends checked",
    "exact": "exact value",
}
"""Searches of the comparison: the name of their trees, and what guides them. Where ends are checked, an answer is known
to be right when it is found, as in `best of n, ends checked` (pass@n)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchPlan:
    """How much is searched and learned."""

    tasks: int = 80
    """Held-out tasks of the comparison."""
    train_tasks: int = 150
    """Training tasks per set of trees: one teaches the first value model, a second one is searched with it."""
    calls: int = 16
    """Policy calls per task."""
    targets: Kind = "progress"
    """What the value model learns: see `planning.targets`."""
    exploration: float = 1.0
    """The constant of PUCT."""
    value_steps: int = 500
    value_batch: int = 32
    value_lr: float = 3e-3
    sft_steps: int = 150
    """Steps of self-training; 0 leaves it out."""
    sft_lr: float = 5e-3


def run_search(
    run: Path,
    plan: SearchPlan,
    *,
    show: Callable[[str], None],
    step: int | str | None = None,
    device: str | None = None,
) -> dict[str, Any]:
    """Search with the policy of a run's checkpoint and write everything below `RUN/search`; returns the summary.

    `step` None is the latest checkpoint. Raises DataError where the environment cannot be searched, too few tasks
    exist or a data file is another than the run's, CheckpointError if the run has no such checkpoint.
    """
    folder, system, at = load_trained_system(run, step, device=device)
    check_data_files(folder.path, system.family)
    for _, text in system.notes:
        show(text)
    study = _Study(system=system, folder=folder, plan=plan, show=show)

    async def search() -> dict[str, Any]:
        try:
            return await study.run()
        finally:
            await system.close()

    summary = {"step": at, "plan": asdict(plan), **asyncio.run(search())}
    folder.write_json("search/summary.json", summary)
    return summary


@dataclass(slots=True, kw_only=True, eq=False)
class _Study:
    """One run of the command."""

    system: System
    folder: RunFolder
    plan: SearchPlan
    show: Callable[[str], None]

    async def run(self) -> dict[str, Any]:
        plan, seed = self.plan, self.system.config.run.seed
        first = first_rl_task(self.system.config)
        tokens: dict[str, dict[str, int]] = {}
        before = await self._evaluate("before")
        trees = await self._search("trees_checked", self._train_draws(first), OutcomeValue(), tokens)
        value = await self._fit(trees)
        points, auc = await self._compare(value, tokens)
        summary: dict[str, Any] = {"before": before.to_json(), "auc": auc}
        if plan.sft_steps:
            draws = self._train_draws(first + plan.train_tasks)
            better = await self._search("trees_learned", draws, CheckedEnds(value), tokens)
            samples = [sample for search in (*trees, *better) for sample in list_right_ways(search)]
            await self._learn(samples)
            summary |= {"ways": len(samples), "after": (await self._evaluate("after")).to_json()}
            again = await self._search("heldout_learned_checked_after", self._heldout(), CheckedEnds(value), tokens)
            points["search, learned value, ends checked, after self-training"] = rate_searches(again, self._budgets)
        return summary | {
            "tokens": tokens,
            "points": {name: [point.to_json() for point in each] for name, each in points.items()},
            "seed": seed,
        }

    async def _compare(
        self, value: ValueFunction, tokens: dict[str, dict[str, int]]
    ) -> tuple[dict[str, list[Point]], float | None]:
        """Every way to answer at every budget; and how well the value tells states that can be won from others."""
        draws, per_sample = self._heldout(), self.system.config.rollout.max_turns
        worker = self.system.worker("train")
        groups = await worker.run_groups(draws, group_size=max(1, self.plan.calls // per_sample))
        self._save("samples", groups)
        tokens["samples"] = {"sampled": sum(t.num_sampled_tokens for group in groups for t in group.trajectories)}
        random = RandomValue(derive_seed(self.system.config.run.seed, "random value"))
        picks = {
            "one sample": lambda samples: samples[0],
            "best of n, learned value": pick_by_scores(score_ends(groups, value)),
            "best of n, random scores": pick_by_scores(score_ends(groups, random)),
            "majority": pick_most_common,
            "best of n, ends checked": pick_right,
        }
        points = {
            name: rate_samples(groups, pick, budgets=self._budgets, per_sample=per_sample)
            for name, pick in picks.items()
        }
        arms: dict[str, ValueFunction] = {
            "learned": value,
            "random": random,
            "learned_checked": CheckedEnds(value),
            "checked": OutcomeValue(),
        }
        if isinstance(self.system.family.build_environment(draws[0].task), SolvedEnvironment):
            arms["exact"] = ExactValue()
        auc = None
        for name, function in arms.items():
            searches = await self._search(f"heldout_{name}", draws, function, tokens)
            points[f"search, {ARMS[name]}"] = rate_searches(searches, self._budgets)
            if name == "learned":
                auc = measure_auc(searches)
        return points, auc

    async def _search(
        self, name: str, draws: Sequence[Draw], value: ValueFunction, tokens: dict[str, dict[str, int]]
    ) -> list[Search]:
        config = self.system.config
        seed = derive_seed(config.run.seed, "search", name)
        proposer = Proposer(
            build_environment=self.system.family.build_environment,
            engine=self.system.engine,
            renderer=self.system.renderer,
            limits=self.system.worker("train").limits,
            sampling=Sampling(temperature=config.rollout.temperature, seed=seed),
        )
        searches = await run_searches(
            draws, proposer, value, max_calls=self.plan.calls, exploration=self.plan.exploration, scope=name
        )
        self._save(name, [to_group(search) for search in searches])
        counts = [count_tokens(search) for search in searches]
        tokens[name] = {fate: sum(count[fate] for count in counts) for fate in counts[0]}
        right = rate_searches(searches, self._budgets)[-1]
        failed = sum(search.failure is not None for search in searches)
        self.show(f"{name}: {right.right} of {right.tasks} right, {failed} broken off, {tokens[name]} tokens")
        return searches

    async def _fit(self, searches: Sequence[Search]) -> LearnedValue:
        plan, config = self.plan, self.system.config
        packing = build_packing(config)
        labelled = label_states(searches, plan.targets)
        if not labelled:
            raise DataError(
                "the search on the training tasks found no correct solution, so there is nothing to learn values from; "
                "raise --calls or --train-tasks, or train the policy further"
            )
        critic = build_critic(
            self.system.model,
            kind="separate",
            lr=plan.value_lr,
            clip=None,
            coefficient=1.0,
            betas=(config.train.beta1, config.train.beta2),
            weight_decay=config.train.weight_decay,
        )
        fit_value(
            critic,
            labelled,
            steps=plan.value_steps,
            batch_size=plan.value_batch,
            seed=derive_seed(config.run.seed, "value model"),
            packing=packing,
        )
        self.show(f"value model: {len(labelled)} states")
        return LearnedValue(critic=critic, packing=packing)

    async def _learn(self, samples: Sequence[Sample]) -> None:
        """Supervised steps on the ways found; the checkpoint goes to `RUN/search/checkpoints`."""
        plan, config = self.plan, self.system.config
        sft = config.sft.model_copy(update={"steps": plan.sft_steps, "lr": plan.sft_lr})
        resolved = resolve(config.model_copy(update={"sft": sft}))
        trainer = build_trainer(resolved, self.system.model, self.system.tokenizer)
        seed = derive_seed(config.run.seed, "self-training")
        for step, batch in enumerate(iterate_batches(samples, sft.batch_size, plan.sft_steps, seed)):
            whole = tuple(range(len(batch)))
            trainer.step(TrainingBatch(step=step, objective="warmup", samples=tuple(batch), updates=(whole,)))
        await build_weight_sync(self.system).publish(self.system.engine.version + 1)
        with checkpoint_writer(self.folder.path / "search", plan.sft_steps) as temporary:
            trainer.save(temporary, {"self_training_steps": plan.sft_steps})
        self.show(f"self-training: {len(samples)} ways, {plan.sft_steps} steps")

    async def _evaluate(self, name: str) -> Summary:
        """Greedy success on held-out tasks."""
        draws = heldout_draws(self.system.family, self.system.config.evaluate.tasks)
        groups = await self.system.worker("evaluate").run_groups(draws, group_size=1)
        self._save(f"greedy_{name}", groups)
        summary = summarise(groups, name=name, label=name, step=0)
        self.show(f"greedy {name}: {summary.row('all').success:.3f}")
        return summary

    def _save(self, name: str, groups: Sequence[TrajectoryGroup]) -> None:
        save_groups(self.folder.path / "search", name, groups, decode=self.system.tokenizer.decode)

    def _train_draws(self, first: int) -> list[Draw]:
        family = self.system.family
        problem = f"the training split has fewer than {first + self.plan.train_tasks} tasks; use fewer"
        indices = range(self.plan.train_tasks)
        return [Draw(index=i, task=take_task(family, "train", first + i, problem)) for i in indices]

    def _heldout(self) -> list[Draw]:
        return heldout_draws(self.system.family, self.plan.tasks)

    @property
    def _budgets(self) -> list[int]:
        """The calls of one sample, doubled up to the whole budget."""
        budgets = [min(self.system.config.rollout.max_turns, self.plan.calls)]
        while budgets[-1] * 2 <= self.plan.calls:
            budgets.append(budgets[-1] * 2)
        return budgets


def list_right_ways(search: Search) -> list[Sample]:
    """The ways of a search that ended right, each as a sample of its own whose replies all train."""
    [trajectory] = to_group(search).trajectories
    right = [path.trajectory for path in split_paths(trajectory) if path.trains]
    return [
        sample
        for alone in right
        if isinstance(alone.reward, Scored) and is_right(alone.reward)
        for sample in to_samples(alone)
    ]


def measure_auc(searches: Sequence[Search]) -> float | None:
    """How well the values of states before the end tell those that can be won from others.

    None where environments do not know the exact value, or there is nothing to compare.
    """
    scores, labels = [], []
    for search in searches:
        for node in [] if search.root is None else search.root.walk()[1:]:
            environment = node.place.environment
            if isinstance(environment, SolvedEnvironment) and not node.has_ended:
                scores.append(node.value)
                labels.append(environment.exact_value() > 0.5)
    return compute_auc(scores, labels)
