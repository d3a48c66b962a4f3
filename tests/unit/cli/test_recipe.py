from pathlib import Path

from turnwise.cli.recipe import split_recipe


def test_an_override_has_an_equals_sign_and_is_no_file(tmp_path: Path) -> None:
    file = tmp_path / "a=b.toml"
    file.write_text("")
    assert split_recipe([str(file), "train.steps=3", "tiny.toml"]) == ([file, Path("tiny.toml")], ["train.steps=3"])


def test_an_override_may_be_longer_than_a_file_name() -> None:
    override = "environment.args.options={" + "x" * 5000 + "}"
    assert split_recipe([override]) == ([], [override])
