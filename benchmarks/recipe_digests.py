"""Train each kind of recipe for two steps and print a digest of its decisions, so that two versions can be compared.

    python benchmarks/recipe_digests.py [NAME ...]

A digest covers the journal (fates of draws, checksums of all weights after each step), the ledger and the metrics other
than times. Equal digests mean that the same tokens were sampled, credited and trained with the same result, bit for
bit. Set OMP_NUM_THREADS=1. For an asynchronous run only the counts are digested, because the version that samples a
token depends on timing.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import turnwise
from turnwise.config.load import parse_value
from turnwise.core.metrics import find_definition
from turnwise.core.protocols import Environment
from turnwise.core.types import Invalid, Message, Reward, Scored, StopReason, Task
from turnwise.environments.search_qa.environment import SearchEnvironment
from turnwise.environments.search_qa.family import SearchQA
from turnwise.store.journal import read_journal

SEARCH = "search_r1/tiny"
SCATTERED = [
    f"environment.name={Path(__file__).stem}:ScatteredSearch",
    "tokenizer.vocab_size=450",
    "rollout.max_turns=3",
]
SMALL = [
    "tokenizer.num_texts=150",
    "rollout.tasks_per_step=2",
    "rollout.group_size=4",
    "sft.steps=4",
    "sft.batch_size=16",
    "sft.num_demonstrations=64",
    "train.steps=2",
    "train.num_threads=1",
    "train.parity_every=0",
    "train.micro_batch_tokens=2048",
    "evaluate.tasks=4",
    "evaluate.controls={}",
    "engine.max_concurrency=16",
    "report.examples=0",
]
KL_REWARD = ["loss.kl.coefficient=0.05", "loss.kl.place=reward", "loss.kl.kind=k1"]
FAMILIES: Mapping[str, tuple[str, list[str]]] = {
    "grpo": (SEARCH, []),
    "two_updates": (SEARCH, ["loss.updates_per_step=2", "loss.epochs=2", "loss.recompute_old=true"]),
    "turn_gae_critic": (SEARCH, ["credit.method=turn_gae", "critic.kind=separate", "critic.epochs=2"]),
    "gae_head_kl_reward": (
        SEARCH,
        ["credit.method=gae", "critic.kind=head", *KL_REWARD],
    ),
    "prime": (SEARCH, ["credit.method=prime"]),
    "vine": (SEARCH, ["credit.method=vine", "rollout.group_size=2"]),
    "tree": (SEARCH, ["credit.method=tree", "rollout.group_size=2"]),
    "remax": (SEARCH, ["credit.method=remax"]),
    "moving_kl": (SEARCH, ["loss.kl.coefficient=0.05", "loss.kl.target=0.01", "loss.entropy_target=1.0"]),
    "moving_kl_reward": (
        SEARCH,
        ["credit.method=reinforce_plus_plus", *KL_REWARD, "loss.kl.target=0.01"],
    ),
    "lora": (SEARCH, ["model.lora.rank=4", "loss.method=gspo"]),
    "without_truncated": (SEARCH, ["credit.method=rae", "rollout.train_truncated=false", "rollout.max_turns=4"]),
    "squared_mass": (SEARCH, ["credit.method=otb", "loss.method=dapo"]),
    "rejection": (SEARCH, ["train.algorithm=rejection", "rejection.passes=2", "rejection.first_threshold=0.0"]),
    "dpo": (SEARCH, ["train.algorithm=dpo", "preference.min_margin=0.05"]),
    "step_dpo": (SEARCH, ["train.algorithm=step_dpo", "preference.min_margin=0.05"]),
    "local_engine": (SEARCH, ["engine.kind=local", "loss.method=cispo"]),
    "workers_engine": (SEARCH, ["engine.kind=workers", "engine.options.num_workers=1"]),
    "two_ranks": (SEARCH, ["train.ranks=2", "loss.kl.coefficient=0.01"]),
    "voices": ("memory/rolling", []),
    "several_learners": ("teams/relay", ["sft.steps=40", "roles.b=learns:second", "loss.kl.coefficient=0.01"]),
    "asynchronous": (SEARCH, ["schedule.max_staleness=1"]),
}
"""Recipe and overrides by name."""


class Scattered(SearchEnvironment):
    """Rewards computed from the replies' text, so that they differ between the members of a group from the first step
    on."""

    async def score(self, replies: Sequence[Message], stop: StopReason) -> Reward:
        """One of 0, 0.25, ... 1, with the parts of the search world."""
        scored = await super().score(replies, stop)
        if isinstance(scored, Invalid):
            return scored
        text = "\n".join(reply.text for reply in replies)
        return Scored(total=hashlib.sha256(text.encode()).digest()[0] % 5 / 4, parts=scored.parts)


class ScatteredSearch(SearchQA):
    """The search world with those rewards."""

    def build_environment(self, task: Task) -> Environment:
        """See the search world's method."""
        environment = super().build_environment(task)
        environment.__class__ = Scattered
        return environment


def main(names: list[str]) -> None:
    """Print a line per recipe."""
    for name in names or FAMILIES:
        began = time.perf_counter()
        recipe, overrides = FAMILIES[name]
        scores = SCATTERED if recipe == SEARCH else []
        with tempfile.TemporaryDirectory() as folder:
            run = turnwise.train(
                recipe=recipe,
                overrides=read_overrides([*SMALL, *scores, *overrides, f"run.output={folder}"]),
                display=False,
            )
            table = read_decisions(run.path, counts_only=name == "asynchronous")
        parts = " ".join(f"{part} {digest(value)}" for part, value in table.items())
        print(f"{name:20} {parts}  {time.perf_counter() - began:5.1f} s", flush=True)


def read_overrides(texts: list[str]) -> dict[str, Any]:
    """Options by name."""
    parts = [text.split("=", 1) for text in texts]
    return {name: parse_value(value) for name, value in parts}


def read_decisions(run: Path, *, counts_only: bool) -> dict[str, Any]:
    """The decisions of the run: journal, ledger and metrics."""
    state = read_journal(run)
    ledger = [json.loads(line) for line in (run / "ledger.jsonl").read_text().splitlines()]
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    if counts_only:
        trained = [(draw.draw, draw.fate) for draw in state.draws.values() if draw.step is not None]
        return {
            "journal": trained,
            "steps": sorted(state.trained),
            "names": sorted({key for row in rows for key in row}),
        }
    draws = [(d.draw, d.task_index, d.version, d.attempt, d.fate, d.step, d.reason) for d in state.draws.values()]
    return {
        "journal": [draws, sorted(state.taken.items())],
        "weights": [(step, sorted(each.sums.items())) for step, each in sorted(state.trained.items())],
        "ledger": ledger,
        "metrics": [{key: value for key, value in row.items() if not is_time(key)} for row in rows],
    }


def is_time(name: str) -> bool:
    """Whether a number varies between runs because it measures time or load."""
    if name == "time" or name.startswith("schedule/"):
        return True
    definition = find_definition(name)
    return definition is not None and (definition.unit == "s" or "/s" in definition.unit or definition.kind == "rate")


def digest(value: Any) -> str:
    """The first 12 digits of the SHA-256 of the value as JSON."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:12]


if __name__ == "__main__":
    main(sys.argv[1:])
