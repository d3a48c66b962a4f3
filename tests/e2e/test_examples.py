"""Every file of docs/extending.md runs, is short, and does what it says."""

import asyncio
import math
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from judge_parts import make_parts
from pydantic import Field

from turnwise.algorithms.credit import CreditTrajectory, CreditTurn
from turnwise.algorithms.losses.inputs import LossInputs, LossOutput
from turnwise.algorithms.losses.method import LossMethod
from turnwise.algorithms.losses.table import build_loss_row
from turnwise.building.resolved import resolve
from turnwise.config.judges import JudgeSection
from turnwise.config.load import load_config
from turnwise.config.section import Section
from turnwise.core.types import Scored, text_message
from turnwise.core.verdicts import Question, Verdict
from turnwise.environments.episodes import play_episode
from turnwise.environments.registry import load_family
from turnwise.judging.judge_kind import JudgeKind
from turnwise.judging.table import build_judge
from turnwise.runs.train import run_train
from turnwise.store.groups import GroupStore
from turnwise.store.run_folder import RunFolder
from turnwise.store.trajectories import load_groups

ROOT = Path(__file__).parent.parent.parent
EXAMPLES = ROOT / "examples"
SHORT = [
    "sft.steps=6",
    "sft.num_demonstrations=32",
    "sft.batch_size=8",
    "train.steps=2",
    "evaluate.tasks=4",
    "tokenizer.num_texts=100",
]
SHORT += ["rollout.tasks_per_step=2", "rollout.group_size=4", "train.num_threads=1"]


@pytest.fixture(autouse=True)
def examples_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)


LONGER = {
    "rl_loop.py": 251,
    "agent_langgraph.py": 75,
    "agent_smolagents.py": 170,
    "agent_team.py": 100,
    "first_run.py": 70,
}
"""Most lines of a whole training loop, and of programs that their libraries make longer."""


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda p: p.name)
def test_examples_are_short_and_named_in_the_document(path: Path) -> None:
    assert len(path.read_text().splitlines()) < LONGER.get(path.name, 60)
    assert any(path.name in document.read_text() for document in (ROOT / "docs").glob("*.md"))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("own_sandbox_tools.py", "variables are kept"),
        ("own_tool.py", "42.165 km"),  # 26.2 * 1.609344 = 42.1648...
        ("own_reward.py", "passes its own cases"),
        ("own_algorithm.py", "[1.0, -0.333"),
        ("own_optimizer.py", "[0.75, 1.25] 0.5"),
    ],
)
def test_scripts_print_what_they_promise(name: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    assert words in capsys.readouterr().out


@pytest.mark.slow
def test_the_loop_learns_and_imports_no_kind_of_run() -> None:
    """With each of the seeds 0 to 2 held-out success rises from about 0.2 to above 0.9."""
    program = (
        "import asyncio, sys, rl_loop; before, after = asyncio.run(rl_loop.main(seed=0)); "
        "print(before, after, any(name.startswith('turnwise.runs') for name in sys.modules))"
    )
    result = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
        env={**os.environ, "PYTHONPATH": f"{EXAMPLES}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"},
    )
    assert result.returncode == 0, result.stderr
    before, after, has_runs = result.stdout.splitlines()[-1].split()
    assert float(after) - float(before) >= 0.5
    assert has_runs == "False"


def test_the_facade_shows_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import facade

    facade.main(
        1,
        overrides={
            "sft.steps": 2,
            "sft.num_demonstrations": 8,
            "sft.batch_size": 4,
            "tokenizer.num_texts": 100,
            "rollout.tasks_per_step": 2,
            "train.num_threads": 1,
            "evaluate.tasks": 4,
            "run.output": tmp_path,
        },
    )
    output = capsys.readouterr().out
    assert "held-out success after RL" in output
    assert "16 trajectories in step 1; one of the best:\nuser: Guess my number from 1 to 3." in output  # 2 tasks of 8
    assert "the rewards of the first group: [" in output


def test_own_environment_trains(tmp_path: Path) -> None:
    config = load_config([EXAMPLES / "own_environment.toml"], [*SHORT, f"run.output={tmp_path}"])
    run = run_train(config, resume=None, display=False)
    assert [r["step"] for r in RunFolder.open(run).read_metrics() if r["phase"] == "train"] == [1, 2]


def test_own_reward_and_own_algorithm_train(tmp_path: Path) -> None:
    overrides = [
        "environment.args.reward=own_reward:THRIFTY",
        "credit.method=own_algorithm:leave_one_out",
        f"run.output={tmp_path}",
    ]
    config = load_config([ROOT / "recipes" / "search_r1" / "tiny.toml"], [*SHORT, *overrides])
    seen = [CreditTrajectory(group="g", reward=reward, turns=(CreditTurn(num_tokens=1),)) for reward in (1.0, 0.0)]
    assert [turns and turns[0].tolist() for turns in resolve(config).build_credit()(seen)] == [[1.0], [-1.0]]
    run = run_train(config, resume=None, display=False)
    assert [r["step"] for r in RunFolder.open(run).read_metrics() if r["phase"] == "train"] == [1, 2]


def test_own_optimizer_and_schedule_train(tmp_path: Path) -> None:
    overrides = [
        "train.optimizer=own_optimizer:build_lion",
        "train.optimizer_options={beta=0.98}",
        "train.lr=1e-4",
        "train.warmup_steps=0",
        "train.decay=own_optimizer:fall_as_root",
        f"run.output={tmp_path}",
    ]
    config = load_config([ROOT / "recipes" / "search_r1" / "tiny.toml"], [*SHORT, *overrides])
    rows = RunFolder.open(run_train(config, resume=None, display=False)).read_metrics()
    rates = [r["train/lr"] for r in rows if r["phase"] == "train"]
    assert rates == [pytest.approx(1e-4), pytest.approx(1e-4 / 2**0.5)]


def test_a_judge_decides_in_training_and_in_evaluation(tmp_path: Path) -> None:
    overrides = [*SHORT, "sft.steps=2", "sft.num_demonstrations=8", "train.steps=1", f"run.output={tmp_path}"]
    run = run_train(load_config([EXAMPLES / "own_judge.toml"], overrides), resume=None, display=False)
    store = GroupStore(RunFolder.open(run).path)
    trained = [each for draw in store.list_draws() for each in store.load(draw).trajectories]
    held_out = [each for group in load_groups(run / "evaluations", "heldout_000001") for each in group.trajectories]
    assert (len(trained), len(held_out)) == (8, 4)
    for trajectory in (*trained, *held_out):
        [judgement] = trajectory.judgements
        assert judgement.judge == "colours"
        assert judgement.question.rubric == "Does the text name two colours?"
        assert isinstance(trajectory.reward, Scored)
        assert judgement.verdict is not None
        assert trajectory.reward.total == judgement.verdict.score
    [step] = [row for row in RunFolder.open(run).read_metrics() if row["phase"] == "train"]
    assert step["judge/colours_questions"] == 8
    assert step["judge/colours_score"] == pytest.approx(step["rollout/reward"])


def test_the_pages_of_a_result_are_read_one_by_one() -> None:
    family = load_family("own_pages:Library", {})
    played = asyncio.run(play_episode(family, family.task("train", 0), family.policy("oracle"), seed=0, max_turns=8))
    results = [message.text for message in played.messages if message.role == "tool"]
    assert [text.split(":")[0] for text in results] == [
        f"page {n} of {len(results)}" for n in range(1, len(results) + 1)
    ]
    assert isinstance(played.reward, Scored)
    assert played.reward.total == 1.0
    assert len(results) >= 2


def read_snippets(name: str) -> list[str]:
    """The Python of a document, block by block."""
    return re.findall(
        r"^```python\n(.*?)^```", (ROOT / "docs" / name).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )


def test_the_loss_of_the_document_computes_and_its_row_is_complete() -> None:
    names: dict[str, object] = {
        "torch": torch,
        "LossInputs": LossInputs,
        "LossOutput": LossOutput,
        "LossMethod": LossMethod,
    }
    function, row = (text for text in read_snippets("extending.md") if "soft_clip" in text)
    exec(function, names)
    exec(row, names)
    method = names["SOFT_CLIP"]
    assert isinstance(method, LossMethod)
    drift, zeros = torch.tensor([0.0, 0.2]), torch.zeros(2)
    loss = build_loss_row(method, {"width": 0.2})
    output = loss(
        LossInputs(
            policy_logprobs=drift,
            old_logprobs=zeros,
            behavior_logprobs=zeros,
            advantages=torch.ones(2),
            sequence=zeros.long(),
        )
    )
    assert output.losses.tolist() == pytest.approx([0.0, -0.2 * math.tanh(1.0)])  # -A w tanh(drift / w)


def test_the_judge_of_the_document_judges() -> None:
    imported = (Section, Question, Verdict, JudgeKind)
    names: dict[str, object] = {"Field": Field, **{each.__name__: each for each in imported}}
    [row] = [text for text in read_snippets("judges.md") if "JudgeKind" in text]
    exec(row, names)
    kind = names["BREVITY"]
    assert isinstance(kind, JudgeKind)
    section = JudgeSection(kind="brevity", options={"longest": 8})
    judge = build_judge(section, kind, make_parts(section.options))
    verdict = asyncio.run(judge.judge(Question(messages=(text_message("user", "good"),))))
    assert verdict.score == 0.5  # 1 - 4 / 8
