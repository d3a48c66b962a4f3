"""CONTRIBUTING.md on adding an algorithm: the files it names exist, and those of its row suffice."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

CREDIT = """
from turnwise.algorithms.credit import CreditMethod, broadcast_outcome


def compute_toy_advantages(rewards, *, offset):
    return [None if reward is None else reward + offset for reward in rewards]


def build_toy(*, offset=1.0):
    return lambda batch: broadcast_outcome(batch, compute_toy_advantages([t.reward for t in batch], offset=offset))


TOY = CreditMethod(
    name="toy", aliases=("Toy-RL",), summary="outcome plus an offset", formula="A = r + offset", paper="none",
    defaults={"offset": 1.0}, group_of_one="r + offset", constant_group="r + offset", compares="nothing",
    build=build_toy,
)
"""
LOSS = """
from turnwise.algorithms.losses.inputs import LossOutput
from turnwise.algorithms.losses.method import LossMethod


def compute_toy_loss(inputs, *, scale):
    losses = -scale * inputs.advantages * inputs.policy_logprobs
    return LossOutput(losses=losses, clipped=inputs.advantages > 1e9)


TOY_LOSS = LossMethod(
    name="toy_loss", aliases=("TOY-PO",), summary="a scaled policy gradient", formula="-scale A log policy",
    paper="none", defaults={"scale": 2.0}, level="token", default_aggregation="sequence_sum", anchor="none",
    function=compute_toy_loss,
)
"""
TRAIN = """
import json, sys
from pathlib import Path
from turnwise.config.load import load_config
from turnwise.core.types import Scored
from turnwise.building.objectives import build_policy_loss
from turnwise.building.resolved import resolve
from turnwise.runs.train import run_train
from turnwise.store.advantages import load_advantages
from turnwise.store.groups import GroupStore

config = load_config([Path(sys.argv[1])], sys.argv[3:])
run = run_train(config, resume=None, display=False)
store = GroupStore(run)
groups, advantages = [store.load(draw) for draw in store.list_draws()], load_advantages(run, 1)
trajectories = [t for group in groups for t in group.trajectories if isinstance(t.reward, Scored)]
Path(sys.argv[2]).write_text(json.dumps({
    "config": json.loads((run / "config.json").read_text()),
    "aggregation": build_policy_loss(resolve(config)).aggregation,
    "credited": [
        [t.reward.total, sorted({float(x) for turn in advantages[t.id] for x in turn})]
        for t in trajectories
    ],
    "changed": json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])["train/changed_tensors"],
}))
"""
SMALL = [
    "model.config.hidden_size=32",
    "model.config.intermediate_size=32",
    "model.config.head_dim=8",
    "tokenizer.num_texts=200",
    "tokenizer.vocab_size=500",
    "environment.args.kinds={no_search = 1.0}",
    "sft.steps=0",
    "train.steps=1",
    "train.num_threads=1",
    "rollout.tasks_per_step=2",
    "rollout.group_size=2",
    "evaluate.tasks=0",
]


def read_row(what: str) -> str:
    """The files that the table "Adding something" names for `what`."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    [row] = [line for line in text.splitlines() if line.startswith(f"| {what} |")]
    return row.split("|")[2]


def list_paths(what: str, name: str) -> list[Path]:
    """The paths of a row, for the algorithm `name`."""
    paths = re.findall(r"`([\w/<>]+(?:\.py|/))`", read_row(what))
    return [
        (ROOT if path.startswith(("tests/", "laboratory/")) else ROOT / "src" / "turnwise")
        / path.replace("<name>", name)
        for path in paths
    ]


@pytest.mark.parametrize(
    ("what", "names"), [("an advantage estimator", ("grpo", "vine")), ("a policy loss", ("gspo",))]
)
def test_the_files_of_a_row_exist(what: str, names: tuple[str, ...]) -> None:
    paths = [list_paths(what, name) for name in names]
    assert len(paths[0]) >= 4
    for alternatives in zip(*paths, strict=True):
        assert any(path.exists() for path in alternatives), alternatives


def add_algorithm(source: Path, what: str, module: str, code: str, row: str) -> None:
    """Add to the copy `source` of the library what the row `what` names: a file with a row, and the table's entry."""
    paths = [path.relative_to(ROOT / "src") for path in list_paths(what, module) if path.is_relative_to(ROOT / "src")]
    file, table = paths[0], next(path for path in paths if path.stem.endswith("table"))
    (source / file).write_text(code, encoding="utf-8")
    text = (source / table).read_text(encoding="utf-8")
    entry = f"from {'.'.join(file.with_suffix('').parts)} import {row}\n"
    text = text.replace("from turnwise.", f"{entry}from turnwise.", 1).replace("    (\n", f"    (\n        {row},\n", 1)
    (source / table).write_text(text, encoding="utf-8")


@pytest.mark.slow
def test_one_file_and_its_entry_in_the_table_are_an_algorithm(tmp_path: Path) -> None:
    source = tmp_path / "src"
    shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
    add_algorithm(source, "an advantage estimator", "toy", CREDIT, "TOY")
    add_algorithm(source, "a policy loss", "toy_loss", LOSS, "TOY_LOSS")
    recipe, result = ROOT / "recipes" / "search_r1" / "tiny.toml", tmp_path / "result.json"
    overrides = ["credit.method=Toy-RL", "credit.options.offset=3", "loss.method=toy-po", f"run.output={tmp_path}"]
    subprocess.run(
        [sys.executable, "-c", TRAIN, str(recipe), str(result), *SMALL, *overrides],
        env={**os.environ, "PYTHONPATH": str(source)},
        check=True,
        timeout=150,
    )
    report = json.loads(result.read_text(encoding="utf-8"))
    assert (report["config"]["credit"]["method"], report["config"]["loss"]["method"]) == ("toy", "toy_loss")
    assert report["aggregation"] == "sequence_sum"
    assert len(report["credited"]) == 4
    for reward, advantages in report["credited"]:
        assert advantages == [reward + 3]
    assert report["changed"] > 0
