"""Runs whose policy sees: every way to sample and to train writes the same run, and the audit finds it whole."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from turnwise.config.load import load_config
from turnwise.config.run import RunConfig
from turnwise.core.errors import TurnwiseError
from turnwise.runs.audit import audit_run
from turnwise.runs.continuing import Continuation
from turnwise.runs.train import run_train
from turnwise.store.groups import GroupStore

RECIPE = Path(__file__).parent / "shades.toml"


def recipe(tmp_path: Path, *overrides: str) -> RunConfig:
    return load_config([RECIPE], [f"run.output={tmp_path}", *overrides])


def train(tmp_path: Path, *overrides: str) -> Path:
    return run_train(recipe(tmp_path, *overrides), resume=None, display=False)


def test_a_seeing_run_is_stored_whole_and_its_audit_holds(tmp_path: Path) -> None:
    run = train(tmp_path)
    group = GroupStore(run).load(0)
    [member, *_] = group.trajectories
    [picture] = group.task.prompt[0].images
    assert picture.pixels is None
    assert [span.digest for span in member.turns[0].images] == [picture.digest]
    stored = sorted((run / "images").glob("*/*.png"))
    assert any(path.stem == picture.digest for path in stored)
    second = [turn for each in group.trajectories for turn in each.turns[1:]]
    assert all(len({span.digest for span in turn.images}) == 2 for turn in second)  # the square, and a white one
    assert audit_run(run, replay_tools=True).to_json()["ok"]
    events = (run / "events.jsonl").read_text(encoding="utf-8")
    assert "parity before step 1" in events


@pytest.mark.slow
@pytest.mark.parametrize(
    "overrides",
    [
        ("rollout.num_workers=2",),
        ("engine.kind=workers",),
        ("engine.options.encode_ahead=true",),
    ],
    ids=" ".join,
)
def test_every_way_to_sample_writes_the_same_run(tmp_path: Path, overrides: tuple[str, ...]) -> None:
    plain, other = train(tmp_path / "one"), train(tmp_path / "two", *overrides)
    assert (plain / "ledger.jsonl").read_text() == (other / "ledger.jsonl").read_text()
    assert audit_run(other).to_json()["ok"]


@pytest.mark.slow
def test_ranks_train_a_tower_although_some_of_their_batches_have_no_picture(tmp_path: Path) -> None:
    run = train(tmp_path, "train.ranks=2", "train.micro_batch_tokens=96")
    assert audit_run(run).to_json()["ok"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "overrides",
    [
        ("critic.kind=separate", "credit.method=gae"),
        ("critic.kind=head", "credit.method=gae"),
        ("loss.kl.coefficient=0.01",),
        ("model.freeze_vision=true",),
        ("model.lora.rank=4",),
        ("schedule.max_staleness=1",),
        ("engine.kind=local",),
    ],
    ids=" ".join,
)
def test_other_models_of_a_run_see_too(tmp_path: Path, overrides: tuple[str, ...]) -> None:
    assert audit_run(train(tmp_path, *overrides)).to_json()["ok"]


@pytest.mark.slow
def test_a_teacher_sees_what_the_student_does(tmp_path: Path) -> None:
    teacher = max((train(tmp_path) / "checkpoints").iterdir())
    given = (f"loss.teacher.path={teacher}", "loss.teacher.coefficient=0.5")
    assert audit_run(train(tmp_path, *given)).to_json()["ok"]
    with pytest.raises(TurnwiseError, match=r"writes a picture of 64 x 64 pixels in .* characters of tokens"):
        train(tmp_path, *given, "model.config.vision_config.patch_size=8")


def test_a_run_goes_on_with_its_pictures(tmp_path: Path) -> None:
    whole = train(tmp_path / "one", "train.steps=2", "train.checkpoint_every=1")
    half = train(tmp_path / "two", "train.steps=1", "train.checkpoint_every=1")
    run_train(None, resume=Continuation(run=half, overrides=["train.steps=2"]), display=False)
    last = [json.loads(line) for line in (half / "ledger.jsonl").read_text().splitlines()][-1]
    assert last == json.loads((whole / "ledger.jsonl").read_text().splitlines()[-1])


def test_more_pictures_than_the_context_holds_are_refused_before_anything_is_sampled(tmp_path: Path) -> None:
    with pytest.raises(TurnwiseError, match=r"rollout.max_tokens=96") as raised:
        train(tmp_path, "environment.args={pictures=40}")
    assert "\n" not in str(raised.value)


def test_a_model_of_text_refuses_an_environment_of_pictures(tmp_path: Path) -> None:
    text = "model.config={hidden_size=32,intermediate_size=64,num_hidden_layers=1,num_attention_heads=4}"
    with pytest.raises(TurnwiseError, match=r"shows a picture.* of 32x32, but the model reads text only"):
        train(tmp_path, "model.model_type=llama", text)
