"""Overrides as people from Hydra, YAML and other trainers write them: taken, or one line says what to write."""

import pytest

from turnwise.config.load import load_config
from turnwise.core.errors import ConfigError


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("++train.lr=1e-6", r"'\+\+train.lr=1e-6' has '\+\+' in front; options are set and added by name alone"),
        ("+trainer.logger=wandb", r"has '\+' in front"),
        ("--train.lr=1e-6", "has '--' in front"),
        ("train.shared_prefix=True", r"'True'; it must be true or false$"),
        ("run.name=123", r"run\.name is 123; it must be text: \"123\" with its quotes$"),
        ("run.name=true", r"it must be text: \"true\" with its quotes$"),
        ("run.name=2024-01-01", r"it must be text: \"2024-01-01\" with its quotes$"),
        ("train.steps=1e3", r"1000\.0; it must be an integer; write 1000$"),
        (
            "environment.tool_timeout_s=null",
            "'null'; it must be a valid number; leave the option out to use none",
        ),
        ("trackers.names=wandb", r"'wandb'; it must be a list, such as \[\"a\", \"b\"\]$"),
        ("trackers.names=['console','wandb']", "tracker 'console' is unknown; use one of tensorboard, wandb"),
        (
            "trainer.max_ckpt_to_keep=2",
            r"^override 'trainer\.max_ckpt_to_keep=2': .* here it is 'train\.keep_checkpoints'",
        ),
        ("actor_rollout_ref.actor.fsdp_config.grad_offload=False", r"here it is 'train\.offload_to_cpu'$"),
        ("nowhere.to.be.found=1", r"^override .*: unknown key 'nowhere'; did you mean '\w+'\? `turnwise options`"),
        ("scale.ray=http://127.0.0.1:8265", r"HOST:PORT with the cluster's own port .*dashboard"),
        ("scale.ray=ray://head:10001", r"not the address of its dashboard .* or of Ray's client"),
        ("run.name=org/experiment", r"'org/experiment'; it must be a folder name"),
        ("run.name=../up", "a folder name"),
        ("run.name=", "''; it must be a folder name"),
        ("run.name=a*", "a folder name"),
        ('environment.args={"mode": "files"}', "it must be a table; write it as in TOML"),
        ("environment.args=files", "it must be a table$"),
        ("train/steps=3", r"unknown key 'train/steps'; did you mean 'train\.steps'\?"),
        ('evaluate.controls."x.y"={code=false}', r"has quotes in its name; set .* TABLE=\{\"a\.b\" = VALUE\}"),
    ],
)
def test_one_line_says_what_to_write(override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        load_config([], [override])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("address", ["", "local", "auto", "head:6379", "[::1]:6379", "10.0.0.1:6379"])
def test_addresses_of_clusters_pass(address: str) -> None:
    assert load_config([], [f'scale.ray="{address}"']).scale.ray == address


@pytest.mark.parametrize(("text", "lr"), [("1e-06", 1e-6), ("5e-7", 5e-7), ("0.000001", 1e-6), ("1E-6", 1e-6)])
def test_a_learning_rate_is_a_number_however_it_is_written(text: str, lr: float) -> None:
    assert load_config([], [f"train.lr={text}"]).train.lr == lr
