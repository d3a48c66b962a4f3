from pathlib import Path

import pytest

from turnwise.cli.recipe import check_flags, split_recipe
from turnwise.core.errors import ConfigError


def test_an_override_has_an_equals_sign_and_is_no_file(tmp_path: Path) -> None:
    file = tmp_path / "a=b.toml"
    file.write_text("")
    assert split_recipe([str(file), "train.steps=3", "tiny.toml"]) == ([file, Path("tiny.toml")], ["train.steps=3"])


def test_an_override_may_be_longer_than_a_file_name() -> None:
    override = "environment.args.options={" + "x" * 5000 + "}"
    assert split_recipe([override]) == ([], [override])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a.toml", "--learning_rate", "1e-6"], r"--learning_rate is not an option .* have no dashes: train\.lr=1e-6$"),
        (["--train.lr=1e-6"], r"--train.lr is not an option .*: train\.lr=1e-6$"),
        (["--use-vllm", "--resume", "x"], r"--use-vllm is not an option .*: engine\.kind=VALUE$"),
        (["--train.no_recompute_activations"], r"not an option .* no dashes, and need true or false after the name"),
        (["--num_generations"], r"rollout\.group_size=VALUE$"),
        (["--per_device_train_batch_size", "4"], r"here it is 'train\.micro_batch_tokens': rows are packed"),
    ],
)
def test_a_flag_of_another_library_is_told_as_an_override(arguments: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_flags(arguments)


def test_flags_of_the_command_pass() -> None:
    check_flags(["a.toml", "--resume", "runs/x", "--dry-run", "--device=cpu", "--ranks", "2", "a.b=--lr", "--unknown"])
