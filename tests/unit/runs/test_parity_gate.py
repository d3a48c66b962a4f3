"""The parity gate on a whole system: it passes a sound one, refuses broken ones by cause, and changes nothing that
follows."""

import copy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from turnwise.audit.parity_gate import run_parity_gate
from turnwise.config.load import load_config
from turnwise.core.errors import EnvironmentFault, TrainingError
from turnwise.core.types import Completion, IntArray, SamplingParams, to_floats
from turnwise.engines.local import LocalEngine
from turnwise.runs.build import System, build_system
from turnwise.runs.sampling import sample_groups
from turnwise.training.parity import BOUNDS

TINY = Path(__file__).parents[3] / "recipes" / "search_r1" / "tiny.toml"
SMALL = [
    "model.config.hidden_size=32",
    "model.config.intermediate_size=32",
    "model.config.head_dim=8",
    "tokenizer.num_texts=100",
    "tokenizer.vocab_size=400",
    "rollout.tasks_per_step=2",
    "rollout.group_size=2",
    "train.num_threads=1",
    "engine.max_concurrency=8",
]


@pytest.fixture(scope="module")
def system() -> System:
    torch.set_num_threads(1)
    return build_system(load_config([TINY], SMALL))


class Meddled(LocalEngine):
    """An engine that reports something else than it did."""

    fault = ""

    async def generate(self, prompt_ids: IntArray, params: SamplingParams, *, session: str) -> Completion:
        if self.fault == "temperature":
            params = replace(params, temperature=0.5)
        completion = await super().generate(prompt_ids, params, session=session)
        if self.fault == "end_token":
            ends = np.isin(completion.token_ids, params.stop_token_ids)
            return replace(completion, logprobs=to_floats(np.where(ends, 0.0, completion.logprobs)))
        return completion


def meddled(system: System, fault: str) -> System:
    engine = Meddled(system.model, max_concurrency=8, max_context=384, decode=system.tokenizer.decode)
    engine.fault = fault
    return replace(system, engine=engine)


def test_a_sound_system_passes(system: System) -> None:
    parity = run_parity_gate(system, step=0)
    assert parity.num_tokens >= 4
    assert parity.within(BOUNDS["float32"])
    assert 0.999 < parity.effective_share <= 1.0


def test_a_gate_leaves_no_trace(system: System) -> None:
    def sampled() -> list[bytes]:
        groups = sample_groups(system, step=1, first_task=0, with_greedy=False).groups
        return [turn.completion.logprobs.tobytes() for g in groups for t in g.trajectories for turn in t.turns]

    before = sampled()
    run_parity_gate(system, step=1)
    assert sampled() == before


@pytest.mark.parametrize("fault", ["temperature", "end_token"])
def test_a_fault_is_refused_by_its_cause(system: System, fault: str) -> None:
    with pytest.raises(TrainingError, match=rf"parity gate before step 1: .*nats apart.*Cause found: {fault}: "):
        run_parity_gate(meddled(system, fault), step=0)


def test_an_engine_that_never_adopted_the_warm_up_is_refused(system: System) -> None:
    trained = copy.deepcopy(system.model)
    with torch.no_grad():
        for parameter in trained.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)) * 0.05)
    with pytest.raises(TrainingError, match=r"Cause found: stale_weights: .*did not adopt the last update"):
        run_parity_gate(replace(system, model=trained), step=0)


def test_a_system_that_cannot_sample_is_refused(system: System) -> None:
    broken = copy.deepcopy(system.model)
    with torch.no_grad():
        next(broken.parameters()).fill_(float("nan"))
    engine = LocalEngine(broken, max_concurrency=8, max_context=384, decode=system.tokenizer.decode)
    with pytest.raises(EnvironmentFault, match=r"could not be scored.*not finite"):
        run_parity_gate(replace(system, engine=engine), step=0)
