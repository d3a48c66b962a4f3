"""Which options may change when a run is continued."""

from pathlib import Path

import pytest

from turnwise.config.continued import CHANGEABLE, adopt_recipe, change_options
from turnwise.config.load import load_config
from turnwise.config.options import list_options
from turnwise.config.run import RunConfig
from turnwise.core.errors import ConfigError

RUN = Path("runs/a")


def test_every_option_that_may_change_exists() -> None:
    options = list_options(RunConfig)
    for name in CHANGEABLE:
        assert any(f"{option}.".startswith(f"{name}.") for option in options), name


def test_a_longer_run_with_other_cadence_retention_and_trackers() -> None:
    config = load_config([], ["train.steps=4"])
    overrides = ["train.steps=8", "train.checkpoint_every=2", "train.keep_checkpoints=9", "evaluate.every=3"]
    changed, changes = change_options(config, [*overrides, "trackers.names=[tensorboard]", "train.lr=0.001"])
    assert (changed.train.steps, changed.trackers.names) == (8, ["tensorboard"])
    assert sorted(map(str, changes)) == [
        "evaluate.every: 0 -> 3",
        "trackers.names: [] -> ['tensorboard']",
        "train.checkpoint_every: 20 -> 2",
        "train.keep_checkpoints: 2 -> 9",
        "train.steps: 4 -> 8",
    ]


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("train.lr=0.5", r"train\.lr: 0\.001 -> 0\.5 cannot change when a run is continued; start a new run"),
        ("rollout.group_size=3", r"rollout\.group_size: 8 -> 3 cannot change .*these can: train\.steps, "),
        ("schedule.max_staleness=1", r"schedule\.max_staleness: 0 -> 1 cannot change"),
        ("environment.args={a=1}", r"environment\.args: .* cannot change"),
        ("train.ranks=2", r"train.ranks: 1 -> 2 cannot be set when a run is continued; use --ranks instead"),
        ("model.device=cuda", r"model\.device: 'auto' -> 'cuda' cannot be set when .* use --device"),
        ("train.stepz=2", r"unknown key 'train\.stepz'; did you mean 'train\.steps'"),
        ("model.lora={rank=4}", r"model\.lora\.\w+: None -> .* cannot change"),
    ],
)
def test_any_other_option_is_refused_by_name(override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        change_options(load_config([]), [override])
    assert "\n" not in str(caught.value)


def test_a_value_that_is_the_same_changes_nothing() -> None:
    config = load_config([])
    assert change_options(config, ["train.lr=1e-3", "rollout.group_size=8"]) == (config, [])


def test_a_recipe_that_continues_its_run_keeps_what_the_machine_chose() -> None:
    recipe = load_config([], ["train.steps=9", "train.ranks=2", "run.output=elsewhere"])
    stored = load_config([], ["train.steps=4", "train.micro_batch_tokens=4096"])
    config, changes = adopt_recipe(stored, recipe, RUN)
    assert list(map(str, changes)) == ["train.steps: 4 -> 9"]
    assert (config.train.steps, config.train.micro_batch_tokens, config.train.ranks) == (9, 4096, 2)
    assert config.run.output == "runs"


def test_another_recipe_of_the_same_name_is_refused_by_its_first_difference() -> None:
    with pytest.raises(ConfigError, match=r"runs/a was made by another recipe: loss\.method: .* change run\.name to"):
        adopt_recipe(load_config([]), load_config([], ["loss.method=gspo"]), RUN)
