"""The rollouts of a parity gate: tokens that sampler and trainer both score, and that never train."""

from __future__ import annotations

from dataclasses import replace

from turnwise.audit.parity_gate import NUM_TASKS, run_parity_gate
from turnwise.batching.samples import to_samples
from turnwise.core.errors import TrainingError
from turnwise.core.seeds import derive_seed
from turnwise.core.types import Draw
from turnwise.runs.build import System, build_policy_model
from turnwise.runs.trainer_thread import TrainerThread


async def check_parity(system: System, trainer: TrainerThread, *, step: int) -> str:
    """Roll out the first training tasks with seeds of their own and compare; returns what was measured, as one line.

    Raises TrainingError naming the measured difference, the bound and the cause found, or saying that no token could
    be sampled.
    """
    config = system.config
    worker = system.worker("train")
    seed = derive_seed(config.run.seed, "parity", step)
    worker = replace(worker, sampling=replace(worker.sampling, seed=seed), scope="parity")
    draws = [Draw(index=index, task=system.family.task("train", index)) for index in range(NUM_TASKS)]
    groups = await worker.run_groups(draws, group_size=1)
    samples = [sample for group in groups for trajectory in group.trajectories for sample in to_samples(trajectory)]
    if not samples:
        worker.failure.check(groups)  # says why, as it would for a rollout
        errors = "; ".join(str(t.error) for group in groups for t in group.trajectories)
        raise TrainingError(f"parity gate before step {step + 1}: no token could be sampled ({errors})")
    ends = {*system.renderer.stop_token_ids, system.tokenizer.eos_token_id, system.tokenizer.pad_token_id}
    parity = await trainer.run(
        lambda: run_parity_gate(
            config,
            system.model,
            samples,
            step=step,
            end_token_ids=[token for token in ends if token is not None],
            build_start=None if config.model.path else lambda: build_policy_model(config, system.tokenizer),
        )
    )
    return (
        f"parity before step {step + 1}: {parity.num_tokens} tokens, mean {parity.mean:.2g}, largest "
        f"{parity.max:.2g} nats, k3 {parity.k3:.2g}, effective share {parity.effective_share:.6f}"
    )
