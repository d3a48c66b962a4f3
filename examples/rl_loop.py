"""A complete reinforcement-learning loop for an agent that uses a tool, written with the library's pieces only.

    python examples/rl_loop.py

The task (`turnwise.testing.NotesFamily`): read a note with a tool. It holds a code to answer with, or the name of a
second note, which has the code. A model with random weights first imitates a scripted policy that reads one note and
hardly ever follows a name; reinforcement learning discovers that following pays. Both take some seconds on one core.

    draw ──▶ roll out ──▶ credit ──▶ step ──▶ publish ──▶ log
      ▲                                          │
      └──────────────────────────────────────────┘

`turnwise train` does the same from a recipe, with checkpoints, a ledger of every token, asynchronous steps, intervals
and a report. Start from this file if you want your own loop."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from turnwise import (
    Draw,
    Limits,
    LocalTrainer,
    PagedEngine,
    RolloutWorker,
    Sampling,
    Scored,
    SharedParameters,
    TagRenderer,
    TrainingBatch,
    TrajectoryGroup,
    build_credit,
    build_loss,
    check_receipt,
    compute_advantages,
    to_credit_trajectories,
    to_samples,
)
from turnwise.core.seeds import derive_seed
from turnwise.rollout.demonstrate import play_demonstration
from turnwise.rollout.workers import FailurePolicy
from turnwise.testing import NotesFamily, build_tiny_model, build_tiny_tokenizer
from turnwise.training.local import TrainerSettings
from turnwise.training.optimizer import Schedule
from turnwise.training.policy_step import PolicyLoss

WARMUP_STEPS, DEMONSTRATIONS = 80, 32
"""Supervised steps, and demonstrations in each."""
RL_STEPS, TASKS, MEMBERS = 30, 16, 8
"""RL steps, tasks drawn in each, and attempts at every task: a group, whose members credit compares."""
HELDOUT = 200
"""Held-out tasks of an evaluation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pieces:
    """The pieces between which the loop moves data."""

    family: NotesFamily
    """Source of tasks and environments."""
    renderer: TagRenderer
    """Messages to token ids and back."""
    trainer: LocalTrainer
    """Changes the model's weights."""
    engine: PagedEngine
    """Samples from the same weights."""
    sync: SharedParameters
    """Tells the engine that they changed."""
    seed: int

    def worker(self, temperature: float) -> RolloutWorker:
        """A worker that carries conversations between the engine and environments; greedy at temperature 0."""
        return RolloutWorker(
            build_environment=self.family.build_environment,
            engine=self.engine,
            renderer=self.renderer,
            limits=Limits(max_turns=4, max_turn_tokens=12, max_tokens=96, timeout_s=60.0),
            sampling=Sampling(temperature=temperature, seed=derive_seed(self.seed, "rollout")),
            failure=FailurePolicy(max_retries=1, max_invalid_share=0.1),
            max_open=256,
            scope="train" if temperature else "evaluate",
        )


def build_pieces(seed: int) -> Pieces:
    """A tokenizer, a model with random weights, its trainer, and an engine that samples from it."""
    family = NotesFamily()
    tokenizer = build_tiny_tokenizer(family.texts(500))
    model = build_tiny_model(vocab_size=len(tokenizer), seed=seed)
    trainer = LocalTrainer(
        model,
        tokenizer,
        TrainerSettings(
            schedule=Schedule(base=2e-3, warmup_steps=0, total_steps=RL_STEPS, decay="none"),
            warmup=Schedule(base=1e-2, warmup_steps=10, total_steps=WARMUP_STEPS, decay="cosine"),
            betas=(0.9, 0.95),
            weight_decay=0.0,
            max_grad_norm=1.0,
            packing={"micro_batch_tokens": 8192, "shared_prefix": True},
            temperature=1.0,
        ),
        loss=PolicyLoss(function=build_loss("ppo"), temperature=1.0),
    )
    engine = PagedEngine(model, max_concurrency=256, max_context=96)
    return Pieces(
        family=family,
        renderer=TagRenderer(tokenizer),
        trainer=trainer,
        engine=engine,
        sync=SharedParameters({"engine": engine}),
        seed=seed,
    )


async def warm_up(pieces: Pieces) -> None:
    """Take supervised steps on demonstrations by the policy "naive": the format of replies, and one search."""
    policy = pieces.family.policy("naive")
    for step in range(WARMUP_STEPS):
        samples = []
        for index in range(step * DEMONSTRATIONS, (step + 1) * DEMONSTRATIONS):
            draw = Draw(index=index, task=pieces.family.task("train", index))
            episode = await play_demonstration(
                draw,
                policy,
                pieces.family.build_environment(draw.task),
                pieces.renderer,
                seed=derive_seed(pieces.seed, "demonstration", index),
                max_turns=4,
            )
            [demonstration] = episode.trajectories
            samples += to_samples(demonstration)
        everything = tuple(range(len(samples)))
        pieces.trainer.step(TrainingBatch(step=step, objective="warmup", samples=tuple(samples), updates=(everything,)))
    await pieces.sync.publish(0)


async def evaluate(pieces: Pieces) -> float:
    """Share of held-out tasks that greedy replies solve."""
    draws = [Draw(index=index, task=pieces.family.task("heldout", index)) for index in range(HELDOUT)]
    return compute_success(await pieces.worker(temperature=0.0).run_groups(draws, group_size=1))


def compute_success(groups: Sequence[TrajectoryGroup]) -> float:
    """Mean reward of the trajectories that could be judged."""
    rewards = [reward for group in groups for reward in group.rewards() if reward is not None]
    return sum(rewards) / len(rewards)


async def learn(pieces: Pieces) -> None:
    """Learn by reinforcement: every step draws tasks that were not trained on before, and compares attempts at each."""
    worker = pieces.worker(temperature=1.0)
    credit = build_credit("grpo")
    for step in range(1, RL_STEPS + 1):
        # Draw: demonstrations used the first tasks.
        first = WARMUP_STEPS * DEMONSTRATIONS + (step - 1) * TASKS
        draws = [Draw(index=index, task=pieces.family.task("train", index)) for index in range(first, first + TASKS)]

        # Roll out. A trajectory that failed through no fault of the model is Invalid, and never trains.
        groups = await worker.run_groups(draws, group_size=MEMBERS)
        worker.failure.check(groups)

        # Credit: one advantage per sampled token of every trajectory that was judged.
        advantages = compute_advantages(credit, groups, to_credit_trajectories(groups))
        samples = [
            sample
            for group in groups
            for trajectory in group.trajectories
            if isinstance(trajectory.reward, Scored)
            for sample in to_samples(trajectory, advantages[trajectory.id])
        ]

        # Step: one update on all samples.
        everything = tuple(range(len(samples)))
        report = pieces.trainer.step(
            TrainingBatch(step=step, objective="policy_gradient", samples=tuple(samples), updates=(everything,))
        )

        # Publish: the engine proves that it samples with the weights the trainer holds.
        receipt = await pieces.sync.publish(step)
        check_receipt(receipt, report.sums, step)

        # Log.
        turns = [len(trajectory.turns) for group in groups for trajectory in group.trajectories]
        print(
            f"step {step:2}  success {compute_success(groups):.2f}  turns {sum(turns) / len(turns):.2f}  "
            f"entropy {report.metrics['train/entropy'].value:.3f}  "
            f"largest gap between sampler and trainer {report.metrics['train/logprob_gap_max'].value:.1e}"
        )


async def main(seed: int = 0) -> tuple[float, float]:
    """Warm up, learn, and return held-out success before and after reinforcement learning."""
    torch.set_num_threads(1)  # faster for such a small model, and the same result on every run
    pieces = build_pieces(seed)
    try:
        await warm_up(pieces)
        before = await evaluate(pieces)
        print(f"held-out success after the warm-up: {before:.2f}")
        await learn(pieces)
        after = await evaluate(pieces)
        print(f"held-out success after reinforcement learning: {after:.2f}")
    finally:
        await pieces.engine.close()
    return before, after


if __name__ == "__main__":
    asyncio.run(main(seed=int(sys.argv[1]) if len(sys.argv) > 1 else 0))
