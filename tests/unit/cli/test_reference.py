"""`turnwise options`, `turnwise metrics` and the two pages that they write."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from turnwise.cli.main import app
from turnwise.cli.reference import list_rows, write_metrics_page, write_options_page
from turnwise.config.load import load_config
from turnwise.config.options import Option, describe_options, find_rows, list_options
from turnwise.config.other_names import OTHER_NAMES, find_other_name
from turnwise.config.run import RunConfig
from turnwise.core.errors import ConfigError
from turnwise.core.metrics import METRICS, find_definition, find_definitions

DOCS = Path(__file__).parents[3] / "docs"


def show(*arguments: str) -> str:
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


@pytest.mark.parametrize(
    ("page", "text"), [("options.md", lambda: write_options_page(list_rows())), ("metrics.md", write_metrics_page)]
)
def test_the_pages_are_what_the_code_says_today(page: str, text) -> None:
    assert (DOCS / page).read_text(encoding="utf-8") == text(), f"docs/{page} is old; `make reference` writes it"


def test_a_row_has_name_type_default_and_meaning() -> None:
    rows = {row.name: row for row in list_rows()}
    assert rows["rollout.group_size"] == Option(
        name="rollout.group_size", type="integer, at least 1", default="8", text="Trajectories per task."
    )
    assert rows["loss.kl"].is_section
    assert rows["loss.kl.kind"].type.startswith('"k1" or "k2"')
    assert (rows["environment.tool_timeout_s"].type, rows["environment.tool_timeout_s"].default) == (
        "number or none, above 0",
        "none",
    )
    assert (rows["trackers.names"].type, rows["trackers.names"].default) == ("list of text", "[]")
    assert rows["environment.mixture.LABEL.weight"].default == "1.0"
    assert rows["model.lora.rank"].default == "16"
    assert rows["engine.options.urls"].default == "required"
    assert rows["engine.options.urls"].text.startswith("engine.kind='server': URLs of running servers")
    assert rows["loss.options.dual_clip"].default == "3.0"
    assert rows["train.lr"].meaning == "Peak learning rate."


def test_the_names_are_those_that_a_recipe_may_have() -> None:
    names = list_options(RunConfig)
    rows = [row for row in describe_options(RunConfig) if not row.is_section]
    assert set(names) == {row.name for row in rows if "LABEL" not in row.name}


@pytest.mark.parametrize(
    ("word", "first"),
    [
        ("rollout.group_size", ["rollout.group_size"]),
        ("loss.kl", ["loss.kl", "loss.kl.coefficient"]),
        ("staleness", ["curriculum.options.staleness", "schedule.max_staleness"]),
        ("laptop", ["model.config"]),
        ("no such thing", []),
    ],
)
def test_a_word_finds_names_before_texts(word: str, first: list[str]) -> None:
    found = [row.name for row in find_rows(list_rows(), word)]
    assert found[: len(first)] == first
    assert bool(found) == bool(first)


@pytest.mark.parametrize(
    ("name", "option"),
    [
        ("num_generations", "rollout.group_size"),
        ("actor_rollout_ref.rollout.n", "rollout.group_size"),
        ("--max-completion-length", "rollout.max_tokens"),
        ("kl_coef", "loss.kl.coefficient"),
        ("temperature", "rollout.temperature"),
        ("per_device_train_batch_size", "train.micro_batch_tokens"),
        ("trainer.policy.optimizer_config.lr", "train.lr"),
        ("data.train_batch_size", "rollout.tasks_per_step"),
        ("ppo_epochs", "loss.epochs"),
        ("lr_warmup_steps_ratio", "train.warmup_ratio"),
        # In a section that has such an option, it is that one.
        ("sft.learning_rate", "sft.lr"),
        ("sft.num_train_epochs", "sft.steps"),
        ("sft.warmup_ratio", "sft.warmup_steps"),
        ("sft.per_device_train_batch_size", "sft.batch_size"),
        ("critic.learning_rate", "critic.lr"),
        ("evaluate.num_generations", "evaluate.samples"),
        ("rollout.max_length", "rollout.max_tokens"),
        ("actor_rollout_ref.rollout.val_kwargs.temperature", "evaluate.temperature"),
        ("worker.rollout.val_override_config.top_p", "evaluate.top_p"),
        ("val_kwargs.n", "evaluate.samples"),
        ("eval_sampling_params.num_generations", "evaluate.samples"),
        ("eval_top_k", "evaluate.top_k"),
        ("value_model.temperature", "rollout.temperature"),
        ("trainer.save_limit", "train.keep_checkpoints"),
    ],
)
def test_names_of_other_libraries_are_known(name: str, option: str) -> None:
    other = find_other_name(name)
    assert other is not None
    assert other.option == option
    assert option in show("options", name)


def test_what_stands_for_another_name_exists_and_hides_nothing() -> None:
    names = {row.name for row in list_rows()}
    assert {other.option for other in OTHER_NAMES.values()} - {""} - names == set()
    assert set(OTHER_NAMES) & names == set()
    assert all(name == name.casefold() for name in OTHER_NAMES)
    assert all(other.option or other.note for other in OTHER_NAMES.values())


@pytest.mark.parametrize(
    ("recipe", "override", "message"),
    [
        ({}, "num_generations=8", r"unknown key 'num_generations'; here it is 'rollout\.group_size'$"),
        (
            {"actor_rollout_ref": {"rollout": {"n": 8}}},
            "run.seed=1",
            r"unknown key 'actor_rollout_ref\.rollout\.n'; here it is 'rollout\.group_size'$",
        ),
        ({"train": {"learning_rate": 1e-6}}, "run.seed=1", r"'train\.learning_rate'; here it is 'train\.lr'$"),
        ({"loss": {"clip_eps": 0.2}}, "run.seed=1", r"here it is 'loss\.options\.clip_low'$"),
        ({}, "generator.sampling_params.top_p=0.9", r"evaluations have evaluate\.top_p"),
        ({}, 'rollout.stop=["</answer>"]', "'rollout.stop'; the renderer ends a reply at .* remove it$"),
        ({}, "sampling_params.stop_token_ids=[2]", "the renderer ends a reply at"),
        ({}, "rollout.repetition_penalty=1.1", "evaluations have no penalties either; remove it"),
        ({}, "sft.warmup_ratio=0.1", r"here it is 'sft\.warmup_steps': a number of optimizer steps, that share of"),
        ({}, "sft.lr_scheduler_type=linear", r"rate of the warm-up always decays to 0 as a cosine; remove it$"),
        ({}, "train.per_device_train_batch_size=4", r"here it is 'train\.micro_batch_tokens': rows are packed"),
    ],
)
def test_a_recipe_with_another_librarys_name_is_told_ours(recipe: dict, override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_config([recipe], [override])


def test_a_word_that_nothing_has_is_refused() -> None:
    for command in ("options", "metrics"):
        with pytest.raises(ConfigError, match="has 'xyzzy' in its name or description"):
            CliRunner().invoke(app, [command, "xyzzy"], catch_exceptions=False)
    with pytest.raises(ConfigError, match=r"nearest names are rollout\.group_size"):
        CliRunner().invoke(app, ["options", "rollout.grup_size"], catch_exceptions=False)


def test_an_exact_name_shows_the_whole_text_and_a_word_the_first_sentence() -> None:
    assert "random weights" in show("options", "train.lr")
    listed = show("options", "steps")
    assert "RL steps; 0 stops after the warm-up." in listed
    assert '"rollout/reward"' in show("metrics", "rollout/reward", "--json")


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("train/loss", "train/loss"),
        ("reward/success", "reward/PART"),
        ("reward/a part/of two", "reward/PART"),
        ("train/age_3_share", "train/age_AGE_share"),
        ("critic/train/loss", "train/loss"),
        ("critic/reward/success", "reward/PART"),
        ("exploitability/nash", None),
        ("train/age__share", None),
    ],
)
def test_a_metric_is_found_under_its_row(name: str, row: str | None) -> None:
    assert find_definition(name) == (None if row is None else METRICS[row])


def test_a_word_finds_metrics() -> None:
    assert list(find_definitions("reward/success")) == ["reward/success"]
    assert "train/kl_reference" in find_definitions("kl")
    assert "train/grad_norm" in find_definitions("before clipping")
