"""A run folder as training leaves it, made of plain numbers: two evaluations, one control, metrics of every phase."""

from __future__ import annotations

import math

import numpy as np
import pytest

from turnwise.config.load import dump_resolved
from turnwise.config.run import RunConfig
from turnwise.core.types import (
    Completion,
    Draw,
    FinishReason,
    Invalid,
    RewardPart,
    Scored,
    StopReason,
    Task,
    ToolCall,
    ToolRecord,
    Trajectory,
    TrajectoryGroup,
    TrajectoryId,
    Turn,
    text_message,
    to_floats,
    to_ids,
)
from turnwise.store.run_folder import RunFolder
from turnwise.store.trajectories import save_groups

HOSTILE = '<script src="//evil.example/x.js">alert(1)</script> & "quotes" \ud800'
NUM_TASKS = 40


class Words:
    """A tokenizer of whole words."""

    def __init__(self) -> None:
        self.words: list[str] = []

    def encode(self, text: str) -> list[int]:
        """Ids of the words of `text`, each with the space after it."""
        words = [f"{word} " for word in text.split(" ")]
        self.words += [word for word in dict.fromkeys(words) if word not in self.words]
        return [self.words.index(word) for word in words]

    def decode(self, ids: object) -> str:
        """The words again."""
        return "".join(self.words[i] for i in ids)  # type: ignore[attr-defined]


def make_group(words: Words, index: int, *, searches: int, success: bool) -> TrajectoryGroup:
    """One held-out task and one trajectory that searches `searches` times; task 39 fails with an error."""
    kind = "2hop" if index % 2 else "1hop"
    question = f"Question {index}: in which town was the spouse of Ada Lorn born? {HOSTILE}"
    payload = {"kind": kind, "answers": ["Velm"]}
    task = Task(environment="search_qa", prompt=(text_message("user", question),), payload=payload, id=f"task{index}")
    random = np.random.default_rng(index)
    turns = []
    texts = [
        f"<think> I should look for step {n} </think> <search> spouse of Ada Lorn {n} </search>"
        for n in range(searches)
    ]
    for number, text in enumerate([*texts, f"<answer> {'Velm' if success else 'Oster'} </answer>"]):
        context = words.encode(
            question if number == 0 else f"<information> Ada Lorn is married to Bo Tam. {HOSTILE} </information>"
        )
        ids = words.encode(text)
        logprobs = -random.exponential(0.5, len(ids))
        call = ToolCall(id=f"call{number}", name="search", arguments="{}")
        turns.append(
            Turn(
                parent=number - 1 if number else None,
                context_ids=to_ids(context),
                completion=Completion(
                    token_ids=to_ids(ids),
                    logprobs=to_floats(logprobs),
                    finish_reason=FinishReason.STOP,
                    version_first=0,
                    version_last=0,
                ),
                message=text_message("assistant", text),
                tool_records=()
                if number == searches
                else (ToolRecord(call=call, observation=HOSTILE, error=None, seconds=0.001),),
            )
        )
    failed = index == NUM_TASKS - 1
    reward = Invalid(reason="tool crashed", retryable=True) if failed else Scored(
        total=float(success),
        parts=(RewardPart(name="success", value=float(success)), RewardPart(name="format", value=1.0)),
    )  # fmt: skip
    trajectory = Trajectory(
        id=TrajectoryId(draw=index, member=0),
        task_id=task.id,
        turns=tuple(turns),
        stop=StopReason.ERROR if failed else StopReason.DONE,
        reward=reward,
        error="EnvironmentFault: <b>tool crashed</b>" if failed else None,
    )
    return TrajectoryGroup(draw=Draw(index=index, task=task), trajectories=(trajectory,))


def row(kind: str, n: int, success: float, calls: float) -> dict[str, object]:
    """A summary row with an interval of plus and minus 0.05."""
    return {
        "kind": kind,
        "n": n,
        "success": success,
        "low": max(0.0, success - 0.05),
        "high": min(1.0, success + 0.05),
        "tool_calls": calls,
        "truncated": 0.0,
        "invalid": 0,
    }


def write_metrics(run: RunFolder) -> None:
    """60 warm-up steps and 60 RL steps that get better; one loss is not finite."""
    for step in range(1, 61):
        run.append_metrics(step, "sft", {"sft/loss": 3 * math.exp(-step / 15) + 0.4, "sft/seconds": 0.2})
    run.append_metrics(0, "evaluate", {"evaluate/success": 0.35, "evaluate/tool_calls": 1.0})
    for step in range(1, 61):
        share = 1 / (1 + math.exp(-(step - 25) / 6))
        run.append_metrics(
            step,
            "train",
            {
                "rollout/reward": 0.35 + 0.6 * share,
                "rollout/success": 0.33 + 0.6 * share,
                "rollout/tool_calls": 1 + 0.7 * share,
                "rollout/tokens_per_s": 5210 + 40 * math.sin(step),
                "rollout/truncated": 0.1 * (1 - share),
                "rollout/invalid": 0.004,
                "rollout/parse_errors": 0.05 * (1 - share),
                "rollout/seconds": 1.2,
                "credit/no_signal_groups": 0.2 + 0.5 * share,
                "train/entropy": math.nan if step == 20 else 1.2 - share,
                "train/grad_norm": 0.8 + 0.3 * math.sin(step / 3),
                "train/kl_reference": 0.0,
                "train/clip_fraction": 0.01,
                "train/tokens_per_s": 31_000.0,
                "train/seconds": 0.8,
            },
        )
    run.append_metrics(60, "evaluate", {"evaluate/success": 0.95, "evaluate/tool_calls": 1.7})


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """The whole folder. Do not change it."""
    run = RunFolder.create(tmp_path_factory.mktemp("runs") / "demo")
    run.write_json("config.json", dump_resolved(RunConfig.model_validate({"run": {"name": "demo <run>"}})))
    write_metrics(run)
    words = Words()
    for name, step, label, searches, hop2, success in (
        ("heldout_000000", 0, "before RL", 1, 0.12, lambda i: i % 2 == 0),
        ("heldout_000060", 60, "after RL", 2, 0.94, lambda i: i % 10 != 0),
        ("heldout_000060_search_off", 60, "after RL, search_off", 1, 0.02, lambda i: False),
    ):
        groups = [make_group(words, i, searches=searches if i % 2 else 1, success=success(i)) for i in range(NUM_TASKS)]
        save_groups(run.path / "evaluations", name, groups, decode=words.decode, with_pieces=True)
        hop1 = 0.02 if "off" in name else 0.9
        rows = [
            row("1hop", 20, hop1, 1.0),
            row("2hop", 19, hop2, float(searches)),
            row("all", 39, (hop1 + hop2) / 2, (1 + searches) / 2),
        ]
        run.write_json(f"evaluations/{name}.summary.json", {"name": name, "step": step, "label": label, "rows": rows})
    return run
