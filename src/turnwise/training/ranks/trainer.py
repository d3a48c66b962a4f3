"""The trainer whose models are on several ranks: implements `core.protocols.Trainer` in the process of the run.

The run's own model is a whole copy in shared memory, from which engines sample; ranks write it after every step."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from turnwise.core.batch import Columns, StepReport, TrainingBatch, Wanted
from turnwise.core.types import Sample
from turnwise.hosts.host import Host
from turnwise.hosts.local import LocalHost
from turnwise.models.structure import list_tensors
from turnwise.training.ranks.group import RankGroup
from turnwise.training.ranks.memory import SharedMemory
from turnwise.training.ranks.messages import decode_columns, decode_report, encode_batch, encode_samples
from turnwise.training.ranks.plan import RankPlan
from turnwise.training.state import save_policy

DEADLINE_S = 600.0
"""Longest time in seconds that ranks wait for each other, as for engines: longer than any micro-batch."""


class RankedTrainer:
    """Trains on several ranks, here or on the nodes of a cluster. Implements `core.protocols.RememberingTrainer`.

    The ranks start with the first call, and end with `close` or with this process.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase | None,
        build: str,
        recipe: Mapping[str, Any],
        *,
        num_ranks: int,
        num_threads: int = 1,
        offloads: bool = False,
        deadline_s: float = DEADLINE_S,
        host: Host | None = None,
    ) -> None:
        """`model` is the policy: it moves to shared memory, and holds the trained weights after every step.

        `tokenizer` is saved with checkpoints. `build` and `recipe` describe the trainer of each rank, see `RankPlan`.
        Each rank has `num_threads` threads. `offloads` keeps their rows in the CPU's memory. `host` starts the ranks;
        None is this machine.
        """
        self.model = model
        self.tokenizer = tokenizer
        self._source = model if model.device.type == "cpu" else _copy_to_cpu(model)
        self._source.share_memory()
        self._numbers = itertools.count()
        plan = RankPlan(
            source=self._source,
            memory=SharedMemory(list_tensors(self._source)),
            build=build,
            recipe=recipe,
            device=model.device.type,
            size=num_ranks,
            num_threads=num_threads,
            offloads=offloads,
            deadline_s=deadline_s,
        )
        self.group = RankGroup(plan, host or LocalHost())

    def score(
        self, samples: Sequence[Sample], wanted: frozenset[Wanted], *, outcomes: Sequence[float] | None = None
    ) -> Columns:
        """See `Trainer.score`. Also raises TrainingError if a rank fails; then the group has ended."""
        given = None if outcomes is None else [float(outcome) for outcome in outcomes]
        answers = self.group.ask("score", samples=encode_samples(samples), wanted=sorted(wanted), outcomes=given)
        return decode_columns(answers[0])

    def step(self, batch: TrainingBatch) -> StepReport:
        """See `Trainer.step`. Also raises TrainingError if a rank fails; then the group has ended."""
        report = decode_report(self.group.ask("step", batch=encode_batch(batch))[0])
        self._publish()
        return report

    def remember(self) -> Callable[[], None]:
        """See `RememberingTrainer.remember`; the previous memory is dropped."""
        number = next(self._numbers)
        self.group.ask("forget", number=number - 1)
        self.group.ask("remember", number=number)
        return partial(self._put_back, number)

    def save(self, folder: Path, counters: Mapping[str, Any]) -> None:
        """See `Trainer.save`: every rank writes its rows, this process the Hugging Face directory."""
        self.group.ask("save", folder=str(folder.absolute()), counters=dict(counters))
        save_policy(folder, self.model, self.tokenizer)

    def load(self, folder: Path) -> Mapping[str, Any]:
        """See `Trainer.load`; the checkpoint may come from any number of ranks, or from one process."""
        counters: Mapping[str, Any] = self.group.ask("load", folder=str(folder.absolute()))[0]
        self._publish()
        return counters

    def close(self) -> None:
        """End the ranks."""
        self.group.close()

    def _put_back(self, number: int) -> None:
        self.group.ask("put_back", number=number)
        self._publish()

    @torch.no_grad()
    def _publish(self) -> None:
        """Let the ranks write their finished rows, and copy them if the model is not itself what they write to."""
        self.group.ask("publish")
        if self._source is self.model:
            return
        for ours, theirs in zip(self.model.parameters(), self._source.parameters(), strict=True):
            ours.copy_(theirs)


def _copy_to_cpu(model: PreTrainedModel) -> PreTrainedModel:
    copied: dict[int, Any] = {
        id(parameter): torch.nn.Parameter(parameter.detach().cpu(), requires_grad=parameter.requires_grad)
        for parameter in model.parameters()
    }
    whole: PreTrainedModel = copy.deepcopy(model, copied).to("cpu")
    return whole
