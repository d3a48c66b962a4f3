"""A whole run that is rewarded without labels."""

from pathlib import Path

import pytest

import turnwise as tw
from turnwise.config.load import load_config
from turnwise.runs.audit import audit_run
from turnwise.runs.train import run_train
from turnwise.store.run_folder import RunFolder
from turnwise_rewards.unlabelled.answers import AnswerOptions, read_voters
from turnwise_rewards.unlabelled.votes import count_votes

RECIPES = Path(__file__).parents[2] / "src" / "turnwise_rewards" / "recipes" / "unlabelled"
HERE = "turnwise_rewards.unlabelled"
TINY = [
    f"environment.name={HERE}.planted:Planted",
    "environment.args.num_questions=4",
    f"rewards.vote.kind={HERE}.votes:MAJORITY",
    f"rewards.sure.kind={HERE}.confidence:ENTROPY",
    "rewards.sure.weight=0.5",
    "tokenizer.num_texts=200",
    "sft.steps=4",
    "sft.num_demonstrations=64",
    "rollout.tasks_per_step=2",
    "rollout.group_size=6",
    "rollout.train_members=2",
    "train.steps=2",
    "evaluate.tasks=0",
]


def test_votes_and_confidence_train_the_first_members_only(tmp_path: Path) -> None:
    config = load_config([RECIPES / "wrong.toml"], [*TINY, f"run.output={tmp_path}"])
    run = run_train(config, resume=None, display=False)
    loaded = tw.load_run(run)
    for group in [group for step in (1, 2) for group in loaded.groups(step)]:
        answers = read_voters(group, AnswerOptions())
        assert len(answers) == 6
        vote = count_votes(answers)
        votes = [vote.share] * 6 if vote.label is None else [float(answer == vote.label) for answer in answers]
        assert [[term.name for term in t.terms] for t in group.trajectories] == [["vote", "sure"]] * 6
        assert [t.terms[0].value for t in group.trajectories] == votes
        for trajectory in group.trajectories:
            voted, sure = trajectory.terms
            assert trajectory.credited == pytest.approx(voted.value + 0.5 * sure.value)
    rows = [row for row in RunFolder.open(run).read_metrics() if row["phase"] == "train"]
    assert all(row["dropped/extra_member"] > row["train/trained_tokens"] > 0 for row in rows)  # 4 members against 2
    # The policy that samples is the one that scores and trains: over its own tokens the loss reports like entropies.
    assert [row["term/sure"] for row in rows] == pytest.approx([-row["train/entropy"] for row in rows], rel=0.2)
    assert audit_run(run).breaches == []
