"""Recipes: merging, overrides, error messages, and the round trip through a run folder."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from turnwise.config.load import dump_resolved, load_config, load_resolved, parse_value
from turnwise.config.options import list_options
from turnwise.config.run import RunConfig
from turnwise.config.shipped import Shipped, list_shipped
from turnwise.config.small_model import SMALL_MODEL, fill_model
from turnwise.config.trackers import TrackersSection
from turnwise.core.errors import ConfigError
from turnwise.models.shape import read_policy_shape

RECIPES = Path(__file__).parents[3] / "recipes"
MODEL = "[model]\npath = 'somewhere'\n"
RATED = MODEL + "[train]\nlr = 1e-6\n"


def write(folder: Path, text: str, name: str = "recipe.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


INSTALLED, _ = list_shipped()


@pytest.mark.parametrize("recipe", INSTALLED, ids=lambda recipe: recipe.name)
def test_every_installed_recipe_loads_and_says_what_it_is(recipe: Shipped) -> None:
    assert load_config([recipe.path]).run.name
    assert len(recipe.summarize().split()) > 2


def test_the_recipes_of_the_checkout_are_those_that_the_package_ships() -> None:
    shipped = {recipe.name for recipe in INSTALLED if recipe.package == "turnwise"}
    assert shipped == {path.relative_to(RECIPES).with_suffix("").as_posix() for path in RECIPES.rglob("*.toml")}
    assert "search_r1/tiny" in shipped


def test_files_merge_left_to_right_and_deep_then_overrides(tmp_path: Path) -> None:
    first = write(
        tmp_path,
        MODEL + "[train]\nlr = 0.5\nsteps = 3\n[environment.args]\na = 1\nb = { x = 1, y = 2 }\n",
        "first.toml",
    )
    second = write(tmp_path, "[train]\nlr = 0.25\n[environment.args]\nb = { y = 3 }\n", "second.toml")
    config = load_config([first, second], ["train.steps=7", "environment.args.c=[1, 2]", "run.name=trial 1"])
    assert (config.train.lr, config.train.steps, config.run.name) == (0.25, 7, "trial 1")
    assert config.environment.args == {"a": 1, "b": {"x": 1, "y": 3}, "c": [1, 2]}
    assert load_config([second, first]).train.lr == 0.5


def test_an_override_replaces_a_whole_table_and_changes_a_single_leaf(tmp_path: Path) -> None:
    recipe = write(
        tmp_path,
        MODEL
        + "[train]\nlr = 0.5\nsteps = 3\n"
        + "[evaluate.controls]\nno_search = { search = 'off' }\nshuffled = { shuffle = true }\n",
    )
    both = {"no_search": {"search": "off"}, "shuffled": {"shuffle": True}}
    assert load_config([recipe]).evaluate.controls == both
    assert load_config([recipe], ["evaluate.controls={}"]).evaluate.controls == {}
    assert load_config([recipe], ["evaluate.controls={half = {p = 0.5}}"]).evaluate.controls == {"half": {"p": 0.5}}
    leaf = load_config([recipe], ["evaluate.controls.no_search.search=on"]).evaluate.controls
    assert leaf == {"no_search": {"search": "on"}, "shuffled": {"shuffle": True}}
    # Overrides apply in order: emptied, then one entry; and a section's other options fall back to their defaults.
    overrides = ["evaluate.controls={}", "evaluate.controls.a.b=1", "train={steps = 7}", "model.path="]
    config = load_config([recipe], overrides)
    assert config.evaluate.controls == {"a": {"b": 1}}
    assert (config.train.steps, config.train.lr) == (7, RunConfig().train.lr)


def test_an_override_of_a_run_folders_config_replaces_a_table(tmp_path: Path) -> None:
    config = load_config([write(tmp_path, RATED + "[evaluate.controls]\nno_search = { search = 'off' }\n")])
    path = write(tmp_path, json.dumps(dump_resolved(config)), "config.json")
    assert load_resolved(path, ["evaluate.controls={}"]).evaluate.controls == {}


def test_what_is_wrong_in_a_replaced_table_is_blamed_on_the_override(tmp_path: Path) -> None:
    recipe = write(tmp_path, MODEL + "[train]\nsteps = 3\n")
    with pytest.raises(ConfigError, match=r"^override 'train=\{steps = -1\}': train\.steps is -1"):
        load_config([recipe], ["train={steps = -1}"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[train]\nstepz = 3", "unknown key 'train.stepz'; did you mean 'train.steps'?"),
        ("[train]\ngroup_size = 3", "unknown key 'train.group_size'; did you mean 'rollout.group_size'?"),
        ("[trian]\nsteps = 3", "unknown key 'trian'; did you mean 'train'?"),
        ("group_size = 3", "unknown key 'group_size'; did you mean 'rollout.group_size'?"),
        ("[train]\nsteps = '3'", "train.steps is '3'; it must be a valid integer"),
        ("[train]\nsteps = 3.0", "train.steps is 3.0; it must be an integer; write 3"),
        ("[train]\nsteps = true", "train.steps is True; it must be a valid integer"),
        ("[train]\nsteps = -1", "train.steps is -1; it must be greater than or equal to 0"),
        ("[train]\nlr = nan", "train.lr is nan; it must be a finite number"),
        ("[train]\ndecay = 'exponential'", "train.decay is 'exponential'; it must be 'none', 'linear' or 'cosine'"),
        ("[loss]\nmask_observations = 1", "loss.mask_observations is 1; it must be true or false"),
        ("[rollout]\ntop_p = 1.0", "unknown key 'rollout.top_p'; training samples from the whole distribution"),
        ("[rollout]\ntop_k = 20", "unknown key 'rollout.top_k'; training samples from the whole distribution"),
        ("[rollout]\nmin_p = 0.1", "unknown key 'rollout.min_p'; training samples from the whole distribution"),
        ("train = 3", "train is 3; it must be a table"),
        (
            "[environment.args]\nwhen = 2020-01-01",
            "environment.args.when is datetime.date(2020, 1, 1); it must be a number, a string",
        ),
    ],
)
def test_a_wrong_key_or_value_names_file_key_and_remedy(tmp_path: Path, text: str, expected: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        load_config([path])
    assert str(caught.value).startswith(f"{path}: {expected}")


def test_the_message_names_the_source_that_set_the_key(tmp_path: Path) -> None:
    good, bad = (
        write(tmp_path, MODEL + "[train]\nsteps = 1", "good.toml"),
        write(tmp_path, "[train]\nlr = 'x'", "bad.toml"),
    )
    with pytest.raises(ConfigError, match=r"bad\.toml: train\.lr"):
        load_config([good, bad])
    with pytest.raises(ConfigError, match=r"override 'train\.lr=x': train\.lr is 'x'"):
        load_config([good], ["train.lr=x"])


def test_missing_file_directory_and_broken_toml(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.toml' does not exist; name a TOML file, an installed recipe"):
        load_config([tmp_path / "nowhere.toml"])
    with pytest.raises(ConfigError, match="cannot read"):
        load_config([tmp_path])
    with pytest.raises(ConfigError, match=r"broken\.toml' is not valid TOML.*line 2"):
        load_config([write(tmp_path, "[train]\nsteps = = 3", "broken.toml")])
    (tmp_path / "latin.toml").write_bytes(b"name = '\xe9'")
    with pytest.raises(ConfigError, match=r"latin\.toml' is not UTF-8 .*; save it as UTF-8"):
        load_config([tmp_path / "latin.toml"])
    with pytest.raises(ConfigError, match=r"train\.yaml' is not valid TOML: .*; a recipe is TOML: a line \[train\]"):
        load_config([write(tmp_path, "train:\n  steps: 3", "train.yaml")])


def test_a_byte_order_mark_is_skipped(tmp_path: Path) -> None:
    assert load_config([write(tmp_path, "\ufeff[train]\nsteps = 3")]).train.steps == 3


def test_a_variable_in_the_folder_of_runs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"run\.output is '\$SCRATCH/runs'; \$SCRATCH is not expanded here; write"):
        load_config([write(tmp_path, "[run]\noutput = '$SCRATCH/runs'")])
    assert load_config([write(tmp_path, "[run]\noutput = 'cash$/5$'")]).run.output == "cash$/5$"


@pytest.mark.parametrize("override", ["train.lr", "=3", "train..lr=3", ".lr=3", "train.=3"])
def test_a_malformed_override_is_refused(tmp_path: Path, override: str) -> None:
    with pytest.raises(ConfigError, match=r"not of the form section\.key=value"):
        load_config([write(tmp_path, MODEL)], [override])


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (
            ["rollout.max_turn_tokens=512"],
            "max_turn_tokens=512 leaves no room for a prompt within rollout.max_tokens=512; lower rollout.max_turn",
        ),
        (
            ["rollout.max_tokens=2000"],
            "rollout.max_tokens=2000 does not fit in engine.max_context=1024; raise engine.max_context",
        ),
        (["model.path=", "model.model_type=gpt2"], "model.model_type='gpt2' has no default sizes; set"),
        (
            ["rollout.group_size=1", "rollout.dynamic_sampling.metric=success"],
            "looks for groups whose members differ",
        ),
        (["credit.options.kl_coefficient=0.1"], "set loss.kl.coefficient and loss.kl.place='reward' instead"),
        (
            ["credit.shaping.max_tokens=10"],
            "credit.shaping.buffer=0 must lie between 1 and credit.shaping.max_tokens=10",
        ),
        (["credit.shaping.buffer=10"], "credit.shaping.buffer=10 has no effect without credit.shaping.max_tokens"),
        (
            ["train.algorithm=dpo", "credit.shaping.few_calls=true"],
            "credit.shaping changes rewards before credit, but train.algorithm='dpo' uses no credit method",
        ),
        (["critic.kind=head", "critic.epochs=2"], "a head trains in the policy's updates"),
        (["critic.kind=separate", "loss.mask_observations=false"], "has values only at sampled tokens"),
        (
            ["loss.kl.coefficient=0.1", "loss.kl.place=reward"],
            "loss.kl.kind='k3' with loss.kl.place='reward': only k1 is correct",
        ),
        (["loss.kl.coefficient=0.1", "loss.kl.kind=k1"], "its expected gradient is 0"),
        (["loss.mask_observations=false", "loss.recompute_old=true"], "trains tokens that were not sampled"),
        (["loss.correction.low=3.0"], "loss.correction.low=3.0 is above loss.correction.high=2.0"),
        (["loss.teacher.replace_credit=true"], "leaves nothing to learn from"),
        (["train.algorithm=dpo", "critic.kind=head"], "does not use critic.kind='head'"),
        (["train.algorithm=rejection", "loss.kl.coefficient=0.1"], "has its own loss"),
        (["train.algorithm=dpo", "loss.updates_per_step=2"], "makes one update per step from its pairs"),
        (["train.algorithm=step_dpo", "rollout.train_truncated=false"], "uses no credit method; set it to true"),
        (["train.algorithm=rejection", "rollout.train_members=4"], "uses no credit method; use 0"),
        (["rollout.train_members=4", "schedule.overdraw=1"], "schedule.overdraw=1 keeps those that finish first"),
        (["rollout.train_members=9"], "rollout.train_members=9 is more than rollout.group_size=8"),
        (["engine.kind=server", "rollout.num_workers=2"], "each rollout process would publish to the same servers"),
        (
            ["engine.kind=server", "roles={b='frozen:x'}"],
            "separate weights for b in roles: servers can serve only one",
        ),
        (["engine.kind=server", "model.lora={}"], "engine.kind='server' only samples full models"),
        (["engine.kind=server", "rollout.grammar=calls"], "rollout.grammar='calls'"),
        (["train.algorithm=dpo", "rollout.group_size=1"], "pairs the members of a group"),
        (["train.algorithm=step_dpo", "preference.kind=ipo"], "are only for 'dpo'"),
        (["train.algorithm=dpo", "preference.kind=ipo", "preference.label_smoothing=0.1"], "set it to 0 with 'ipo'"),
        (["train.offload_to_cpu=true"], "needs ranks, but train.ranks=1"),
        (["rejection.first_threshold=2.0"], "the threshold must not fall"),
        (
            ["rollout.tasks_per_step=8", "schedule.max_open_groups=7"],
            "schedule.max_open_groups=7 is less than rollout.tasks_per_step=8, so no batch would ever be full; "
            "raise it, or use 0",
        ),
        (
            ["rollout.tasks_per_step=8", "schedule.max_staleness=1", "schedule.max_open_groups=17"],
            "schedule.max_open_groups=17 is never reached: schedule.max_staleness=1 allows 16 groups with "
            "rollout.tasks_per_step=8; lower it, or raise the staleness",
        ),
        (
            ["schedule.late=cut"],
            "schedule.late='cut' with schedule.max_staleness=0: a synchronous step waits for its only batch",
        ),
        (["schedule.late=drop"], "schedule.late='drop' with schedule.max_staleness=0"),
        (
            ["rollout.group_size=4", "schedule.max_staleness=1", "schedule.late=cut", "schedule.min_members=5"],
            "schedule.min_members=5 is more than rollout.group_size=4, so no group would ever be cut; lower it",
        ),
        (
            ["schedule.max_staleness=1", "rollout.dynamic_sampling={metric = 'reward', refill = 'value'}"],
            "refill='value' compares the tasks of one synchronous step; use 'new', or schedule.max_staleness=0",
        ),
        (
            ["rollout.group_size=1", "credit.method=reinforce", "schedule.overdraw=1"],
            "schedule.overdraw=1 keeps the first of 2 members, rollout.group_size=1; use groups of at least 2",
        ),
    ],
)
def test_sections_that_contradict_each_other(tmp_path: Path, overrides: list[str], expected: str) -> None:
    recipe = write(tmp_path, RATED)
    load_config([recipe])
    with pytest.raises(ConfigError) as caught:
        load_config([recipe], overrides)
    assert expected in str(caught.value)


@pytest.mark.parametrize(
    "overrides",
    [
        ["rollout.tasks_per_step=8", "schedule.max_open_groups=8"],
        ["rollout.tasks_per_step=8", "schedule.max_staleness=1", "schedule.max_open_groups=16"],
        ["rollout.group_size=4", "schedule.max_staleness=1", "schedule.late=cut", "schedule.min_members=4"],
        ["rollout.group_size=4", "schedule.max_staleness=1", "schedule.late=drop", "schedule.min_members=5"],
        ["rollout.group_size=2", "schedule.overdraw=1"],
        ["rollout.dynamic_sampling={metric = 'reward', refill = 'value'}"],
    ],
)
def test_schedules_at_the_edge_of_what_fits_together_load(tmp_path: Path, overrides: list[str]) -> None:
    load_config([write(tmp_path, RATED)], overrides)


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        ("3", 3),
        (" 3 ", 3),
        ("1e-3", 0.001),
        ("true", True),
        ("True", "True"),
        ("[1, 'a']", [1, "a"]),
        ("{x = 1}", {"x": 1}),
        ("'3'", "3"),
        ("search off", "search off"),
        ("", ""),
        ("a=b", "a=b"),
        ("1\nother = 2", "1\nother = 2"),
        ("9" * 5000, "9" * 5000),
    ],
)
def test_override_values(raw: str, value: object) -> None:
    parsed = parse_value(raw)
    assert parsed == value
    assert type(parsed) is type(value)


@given(st.text())
def test_any_text_is_some_value(raw: str) -> None:
    parse_value(raw)


json_values = st.recursive(
    st.booleans()
    | st.integers(-(2**62), 2**62)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text("abcz .é\"'=#[", max_size=8),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=6,
)


@given(json_values)
def test_a_value_written_as_toml_reads_back_equal(value: Any) -> None:
    # JSON text of these types is TOML text as well, except that TOML wants a fraction before an exponent-free float
    # (json writes one).
    assert parse_value(json.dumps(value, ensure_ascii=False)) == value


@given(
    st.integers(0, 10**6),
    st.floats(1e-9, 1e9),
    st.booleans(),
    st.dictionaries(st.text(max_size=5), json_values, max_size=3),
)
def test_the_resolved_tree_reloads_equal(seed: int, lr: float, mask: bool, args: dict[str, Any]) -> None:
    tree = {
        "run": {"seed": seed},
        "train": {"lr": lr},
        "loss": {"mask_observations": mask},
        "environment": {"args": args},
    }
    config = RunConfig.model_validate(tree)
    assert RunConfig.model_validate(json.loads(json.dumps(dump_resolved(config)))) == config


def test_a_run_folders_config_reloads_equal_and_a_damaged_one_is_named(tmp_path: Path) -> None:
    config = load_config([RECIPES / "search_r1" / "tiny.toml"], ["train.steps=3"])
    path = tmp_path / "config.json"
    path.write_text(json.dumps(dump_resolved(config)), encoding="utf-8")
    assert load_resolved(path) == config
    path.write_text('{"train": {"steps": ', encoding="utf-8")
    with pytest.raises(ConfigError, match=r"config.json .* is this a run folder"):
        load_resolved(path)
    path.write_text('{"train": {"velocity": 1}}', encoding="utf-8")
    with pytest.raises(ConfigError, match=r"config\.json: unknown key 'train\.velocity'"):
        load_resolved(path)
    with pytest.raises(ConfigError, match="is this a run folder"):
        load_resolved(tmp_path / "missing.json")


def test_a_config_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        RunConfig().train.lr = 1.0  # type: ignore[misc]


def test_every_option_is_documented_and_there_are_not_too_many() -> None:
    names = list_options(RunConfig)
    assert 40 < len(names) <= 200
    sections: list[tuple[str, type[BaseModel]]] = [("", RunConfig)]
    while sections:
        path, section = sections.pop()
        for name, field in section.model_fields.items():
            is_section = isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)
            assert field.description or (not path and is_section), f"{path}.{name}"
            if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
                sections.append((f"{path}.{name}", field.annotation))


def test_loading_a_recipe_and_planning_it_do_not_import_torch() -> None:
    code = f"""
import sys, pathlib
import turnwise.forecast.simulation.fit
from turnwise.config.engine_kinds.table import find_engine_kind
from turnwise.config.load import load_config
from turnwise.forecast.copies import Copies
from turnwise.forecast.plan import compute_plan
from turnwise.forecast.settings import ForecastSettings
config = load_config([pathlib.Path({str(RECIPES / "search_r1" / "tiny.toml")!r})])
sections = {{name: getattr(config, name) for name in ("model", "engine", "rollout", "train", "loss")}}
kind, size = find_engine_kind(config.engine.kind), config.tokenizer.vocab_size
further = {{"branches_per_attempt": 0, "has_credit": True, "num_demonstrations": 0}}
plan = compute_plan(ForecastSettings(**sections, **further, engine_kind=kind, vocab_size=size, copies=Copies()))
assert plan.memory.peak > 0
sys.exit(sorted({{"torch", "transformers", "bm25s", "renderers"}} & set(sys.modules)) or 0)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_recipe_without_a_model_gets_the_small_one(tmp_path: Path) -> None:
    config = load_config([write(tmp_path, "[train]\nsteps = 3\n")])
    assert config.model.config == dict(SMALL_MODEL)
    assert config.model.model_type == "qwen3"
    # The run folder's config holds the sizes, so that a later default changes no run.
    path = write(tmp_path, json.dumps(dump_resolved(config)), "config.json")
    assert load_resolved(path).model.config == dict(SMALL_MODEL)


def test_a_model_config_that_is_given_is_used_as_it_is_or_refused(tmp_path: Path) -> None:
    sizes = "hidden_size = 8, intermediate_size = 8, num_hidden_layers = 1, num_attention_heads = 2"
    given = f"[model]\nconfig = {{ {sizes} }}\n"
    assert set(load_config([write(tmp_path, given)]).model.config) == {
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
    }
    with pytest.raises(ConfigError, match=r"sets hidden_size without intermediate_size, num_hidden_layers, num_att"):
        load_config([write(tmp_path, "[train]\n")], ["model.config.hidden_size=32"])
    # Beside a directory it is not read, and sizes of other names are the architecture's own business.
    named = write(tmp_path, MODEL + "config = { hidden_size = 8 }\n")
    assert load_config([named], ["train.lr=1e-6"]).model.path == "somewhere"
    other = load_config([write(tmp_path, "[model]\nmodel_type = 'gpt2'\nconfig = { n_embd = 8 }\n")])
    assert other.model.config == {"n_embd": 8}


def test_the_small_model_has_the_size_that_its_docstring_names() -> None:
    # 2 layers of (64 * 16 * 2 * (4 + 2) + 3 * 64 * 128) = 36,864 numbers, 1,024 * 64 embeddings, 5 norms of 64 numbers:
    # 73,728 + 65,536 + 320 = 139,584.
    shape = read_policy_shape(fill_model(RunConfig()).model, vocab_size=RunConfig().tokenizer.vocab_size)
    assert shape is not None
    assert shape.num_parameters == 139_584


def test_run_folders_with_a_project_for_every_tracker_are_read() -> None:
    old = {"names": ["mlflow"], "wandb": {"project": "turnwise", "mode": "online"}, "trackio": {"project": "turnwise"}}
    trackers = TrackersSection.model_validate({**old, "mlflow": {"experiment": "mine", "tracking_uri": "uri"}})
    assert (trackers.project, trackers.wandb.mode, trackers.mlflow.tracking_uri) == ("mine", "online", "uri")
    assert TrackersSection.model_validate(old).project == "turnwise"
    with pytest.raises(ValueError, match="one project, not mine and other; set trackers"):
        TrackersSection.model_validate({**old, "mlflow": {"experiment": "mine"}, "trackio": {"project": "other"}})


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ("", "train.lr is not set with model.path='somewhere'.*0.001 is for random weights; set it .1e-6 suits"),
        ("[model.lora]\n", "train.lr is not set.*1e-5 to 1e-4 suit an adapter"),
        ("[train]\nsteps = 3\n", "train.lr is not set"),
        ("[train]\nlr = 1e-6\n[sft]\nsteps = 3\n", "sft.lr is not set with model.path='somewhere'.*0.003"),
        ("[train]\nsteps = 0\n", ""),
        ("[train]\nlr = 1e-3\n", ""),  # the default, but somebody said so
        ("[train]\nlr = 1e-6\n[sft]\nsteps = 3\nlr = 1e-5\n", ""),
    ],
)
def test_pretrained_weights_are_not_trained_at_a_rate_nobody_gave(tmp_path: Path, table: str, expected: str) -> None:
    recipe = write(tmp_path, MODEL + table)
    if not expected:
        load_config([recipe])
        return
    with pytest.raises(ConfigError, match=expected):
        load_config([recipe])
    load_config([recipe], ["train.lr=1e-6", "sft.lr=1e-5"])


def test_random_weights_have_a_default_rate_and_so_has_an_old_run_folder(tmp_path: Path) -> None:
    assert load_config([], ["sft.steps=3"]).train.lr == 1e-3
    old = dump_resolved(RunConfig.model_validate({"model": {"path": "somewhere"}}))
    path = write(tmp_path, json.dumps(old), "config.json")
    assert load_resolved(path).train.lr == 1e-3
    assert load_resolved(path, ["train.ranks=2"]).train.lr == 1e-3


def test_options_that_the_optimizer_does_not_read_are_refused() -> None:
    for overrides, expected in (
        (["train.optimizer=torch.optim:SGD", "train.beta2=0.99"], "only train.optimizer='adamw' uses train.beta2; "),
        (["train.optimizer_options={lr=1.0}"], "train.optimizer_options cannot set lr; "),
        (["train.optimizer=sgd"], "train.optimizer is 'sgd'; it must be 'adamw', or an import path"),
        (["train.min_lr_ratio=0.1", "train.decay=none"], "train.min_lr_ratio=0.1 is the end of a decay"),
    ):
        with pytest.raises(ConfigError, match=expected):
            load_config([], overrides)


def test_more_updates_than_trajectories_are_refused(tmp_path: Path) -> None:
    # 2 tasks of 4 members are 8 trajectories: 8 parts of one each, and no ninth
    recipe = write(tmp_path, RATED + "[rollout]\ntasks_per_step = 2\ngroup_size = 4\n")
    assert load_config([recipe], ["loss.updates_per_step=8"]).loss.updates_per_step == 8
    with pytest.raises(ConfigError, match=r"loss.updates_per_step=9 splits the 8 trajectories of a step"):
        load_config([recipe], ["loss.updates_per_step=9"])
