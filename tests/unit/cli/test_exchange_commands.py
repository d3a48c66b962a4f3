"""`turnwise data` and `turnwise track` on small files."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from turnwise.cli.main import app
from turnwise.config.load import dump_resolved
from turnwise.config.run import RunConfig
from turnwise.core.errors import ConfigError, DataError
from turnwise.store.run_folder import RunFolder


def call(*arguments: object) -> str:
    """What the command prints; raises what it raises."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def make_run(path: Path) -> RunFolder:
    folder = RunFolder.create(path / "run")
    folder.write_json("config.json", dump_resolved(RunConfig.model_validate({"model": {"path": "x"}})))
    folder.append_metrics(1, "train", {"rollout/reward": 0.5})
    return folder


def test_convert(tmp_path: Path) -> None:
    source, target = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    source.write_text('{"question": "2 + 2?", "answers": ["4"]}\n', encoding="utf-8")
    output = call("data", "convert", source, target, "--from", "turnwise", "--to", "verl", "--set", "level=3")
    assert "1 tasks written to" in output
    row = json.loads(target.read_text(encoding="utf-8"))
    assert (row["level"], row["reward_model"]) == (3, {"style": "rule", "ground_truth": "4"})
    with pytest.raises(ConfigError, match="--set 'level' is not of the form column=value"):
        call("data", "convert", source, target, "--from", "turnwise", "--to", "verl", "--set", "level")


def test_a_batch_that_a_run_lacks_is_named(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    with pytest.raises(DataError, match="has no 'step_000007'; it has nothing yet"):
        call("data", "sft", run.path, tmp_path / "o.jsonl", "--batch", "step_000007")


def test_track_refuses_what_it_does_not_know(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="tracker 'tensorbord' is unknown"):
        call("track", make_run(tmp_path).path, "--to", "tensorbord")


def test_track_writes_a_stored_run(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    run = make_run(tmp_path)
    output = call("track", run.path, "--to", "tensorboard", "--set", f"trackers.tensorboard.dir={tmp_path / 'events'}")
    assert str(tmp_path / "events" / "run") in output
    assert list((tmp_path / "events" / "run").glob("events.out.tfevents.*"))
