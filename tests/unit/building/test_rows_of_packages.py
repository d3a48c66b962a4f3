"""Rows of losses, credit methods, engines and annotators of other packages: at import paths and by offered names."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from installed import write_entry_points

from turnwise.building import learners
from turnwise.building.checks import check_methods
from turnwise.building.forecasting import read_forecast_settings
from turnwise.building.objectives import build_policy_loss
from turnwise.building.resolved import resolve
from turnwise.config.annotators import AnnotatorSection
from turnwise.config.engine_kinds.table import ENGINE_KINDS, find_engine_kind
from turnwise.config.load import load_config
from turnwise.config.run import RunConfig
from turnwise.config.train_algorithms.table import ALGORITHMS
from turnwise.core.errors import ConfigError
from turnwise.credit.annotator_kind import AnnotatorParts
from turnwise.credit.annotator_table import build_annotator, find_annotator, find_annotators
from turnwise.engines import registry
from turnwise.engines.registry import build_engine
from turnwise.engines.settings import EngineSettings
from turnwise.forecast.memory import plan_memory
from turnwise.testing import build_tiny_model, make_group, make_trajectory, make_turn

TINY = Path(__file__).parents[3] / "recipes" / "search_r1" / "tiny.toml"
MODULE = """
from dataclasses import replace

import torch

from turnwise.algorithms.credit import CreditMethod, build_outcome_credit
from turnwise.algorithms.losses.inputs import LossOutput
from turnwise.algorithms.losses.method import LossMethod
from turnwise.config.engine_kinds.kind import EngineKind, EngineOptions, Footprint
from turnwise.config.section import Section
from turnwise.credit.annotator_kind import AnnotatorKind


def soft_clip(inputs, *, width):
    drift = inputs.policy_logprobs - inputs.old_logprobs
    return LossOutput(losses=-inputs.advantages * width * torch.tanh(drift / width), clipped=drift.detach() > width)


SOFT_CLIP = LossMethod(
    name="soft_clip",
    summary="",
    formula="",
    paper="",
    defaults={"width": 0.2},
    level="token",
    default_aggregation="sequence_mean",
    anchor="old",
    stale="proximal",
    batch_rule=True,
    function=soft_clip,
)


class Judge:
    def __init__(self, parts):
        self.family = parts.family

    async def annotate(self, group):
        return group


async def label(group, role="plain"):
    return replace(group, role=f"labelled {role}")


class JudgeOptions(Section):
    depth: int = 1


JUDGE = AnnotatorKind(name="judge", fills="progress", options=JudgeOptions, build=Judge)


def center(weight):
    return build_outcome_credit(lambda members: [None if m.reward is None else weight * m.reward for m in members])


WEIGHED = CreditMethod(
    name="weighed",
    summary="",
    formula="",
    paper="",
    defaults={"weight": 2.0},
    group_of_one="",
    constant_group="",
    needs=("progress",),
    compares="group",
    branches="random",
    annotators=("NAME:JUDGE",),
    build=center,
)


class TwinOptions(EngineOptions):
    copies: int = 2


def build_twin(model, **given):
    return given


TWIN = EngineKind(
    name="twin",
    options=TwinOptions,
    build=build_twin,
    records_experts=False,
    follows_grammars=False,
    samples_adapters=False,
    one_policy="it holds those of one policy",
    predict=lambda options: Footprint(num_guests=options.get("copies", 2), guest_cache_bytes=1 << 20),
)
NOT_BUILT = EngineKind(name="lazy")
LOOSE = EngineKind(name="loose", build=build_twin, options={"copies": 2})
VAGUE = EngineKind(name="vague", build=build_twin, predict=lambda options: 3)
MISSPELT = replace(SOFT_CLIP, stale="decoupeld")
NUMBER = 3
"""


def config(*overrides: str) -> RunConfig:
    return load_config([TINY], overrides)


def install(folder: Path, package: str, groups: dict[str, dict[str, str]], *, requires: str = "") -> None:
    """What pip leaves of a package: a module and its entry points."""
    write_entry_points(folder, package, groups, requires=requires)
    (folder / f"{package}.py").write_text(MODULE.replace("NAME", package))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_every_built_in_row_has_what_builds_it() -> None:
    assert set(registry.BUILDERS) == set(ENGINE_KINDS)
    assert set(learners.BUILDERS) == set(ALGORITHMS)
    assert all(name == kind.name for name, kind in ENGINE_KINDS.items())
    assert all(name == algorithm.name for name, algorithm in ALGORITHMS.items())


@pytest.mark.parametrize("name", ["rows_of_loss:SOFT_CLIP", "soft_clip"])
def test_a_row_of_a_loss_states_what_a_built_in_one_states(folder: Path, name: str) -> None:
    install(folder, "rows_of_loss", {"turnwise.losses": {"soft_clip": "rows_of_loss:SOFT_CLIP"}})
    resolved = resolve(config(f"loss.method={name}", "loss.options.width=0.5", "schedule.max_staleness=1"))
    # A bare function is refused here, as it does not say how stale tokens are corrected.
    assert (resolved.correction.recompute_old, resolved.correction.mode) == (True, "none")
    assert resolved.config.loss.method == name
    loss = build_policy_loss(resolved)
    assert (loss.aggregation, loss.batch_rule) == ("sequence_mean", True)
    with pytest.raises(ConfigError, match=r"has no option 'wide' \(did you mean 'width'\?\)"):
        build_policy_loss(resolve(config(f"loss.method={name}", "loss.options.wide=0.5")))
    with pytest.raises(ConfigError, match=r"option 'width' is 'far'; it must be a number"):
        build_policy_loss(resolve(config(f"loss.method={name}", "loss.options.width=far")))


def test_a_row_of_credit_brings_its_needs_branches_and_annotators(folder: Path) -> None:
    install(folder, "rows_of_credit", {})
    resolved = resolve(config("credit.method=rows_of_credit:WEIGHED", "credit.options.weight=3.0"))
    assert resolved.branches == "random"
    assert [(kind.name, kind.fills) for kind in resolved.annotators.values()] == [("rows_of_credit:JUDGE", "progress")]
    assert not resolved.needs_baseline
    credit = resolved.build_credit()
    assert credit.method.needs == ("progress",)
    with pytest.raises(ConfigError, match=r"compares the members of a group, and rollout.group_size=1"):
        check_methods(config("credit.method=rows_of_credit:WEIGHED", "rollout.group_size=1"))
    with pytest.raises(ConfigError, match=r"has no option 'wieght' \(did you mean 'weight'\?\)"):
        resolve(config("credit.method=rows_of_credit:WEIGHED", "credit.options.wieght=3.0")).build_credit()


def test_an_annotator_may_be_a_function_of_a_group(folder: Path) -> None:
    install(folder, "rows_of_notes", {"turnwise.annotators": {"labels": "rows_of_notes:label"}})
    for name in ("labels", "rows_of_notes:label"):
        kind = find_annotator(name, key="credit.method='mine': annotator")
        annotator = build_annotator(kind, make_parts(), name="labels", section=AnnotatorSection(options={"role": "r"}))
        group = asyncio.run(annotator.annotate(make_group(make_trajectory(make_turn([1], [2])))))
        assert group.role == "labelled r"
    with pytest.raises(ConfigError, match=r"credit.method='mine': annotator='label' is neither one of greedy_baseline"):
        find_annotator("label", key="credit.method='mine': annotator")


def make_parts() -> AnnotatorParts:
    nothing: Any = None
    return AnnotatorParts(family=nothing, renderer=nothing, run_greedy=nothing, score=nothing, tokenizer=nothing)


def test_a_recipe_adds_annotators_and_gives_options_to_those_that_credit_asks_for(folder: Path) -> None:
    for package in ("rows_of_credit", "rows_of_notes"):
        install(folder, package, {})
    asked = "rows_of_credit:JUDGE"
    method = "credit.method=rows_of_credit:WEIGHED"
    resolved = resolve(config(method, "annotators.second.kind=rows_of_notes:label"))
    assert [*resolved.annotators] == [asked, "second"]
    resolved = resolve(config("credit.method=process_scores", "annotators.labels.kind=rows_of_notes:label"))
    assert [(name, kind.name) for name, kind in resolved.annotators.items()] == [("labels", "rows_of_notes:label")]
    sections = {asked: AnnotatorSection(options={"level": 2})}
    kinds = find_annotators([asked], "mine", sections)
    with pytest.raises(ConfigError, match=r"annotators.rows_of_credit:JUDGE.options.level is not an option of .*depth"):
        build_annotator(kinds[asked], make_parts(), name=asked, section=sections[asked])
    with pytest.raises(ConfigError, match=r"annotators.nobody.kind='nobody' is neither one of greedy_baseline"):
        resolve(config("credit.method=grpo", "annotators.nobody.options.path=x"))
    with pytest.raises(ConfigError, match=r"asks for the annotator 'rows_of_credit:JUDGE'; leave kind out"):
        find_annotators([asked], "mine", {asked: AnnotatorSection(kind="other")})


def test_a_row_of_an_engine_is_read_by_checks_plan_and_builder(folder: Path) -> None:
    install(folder, "rows_of_engines", {"turnwise.engines": {"twin": "rows_of_engines:TWIN"}})
    for name in ("twin", "rows_of_engines:TWIN"):
        kind = find_engine_kind(name)
        model = build_tiny_model()
        common = EngineSettings(max_concurrency=2, max_context=64)
        given = build_engine(kind, model, common=common, options={"copies": 3}, host=None)
        assert (given["options"].copies, given["host"], given["common"]) == (3, None, common)  # type: ignore[index]
        with pytest.raises(ConfigError, match=r"options.copy is not an option of engine.kind='.*did you mean 'copies'"):
            build_engine(kind, model, common=common, options={"copy": 3})
        recipe = config(f"engine.kind={name}", "engine.options.copies=3", "train.micro_batch_tokens=1024")
        plan = plan_memory(read_forecast_settings(resolve(recipe)))
        assert plan is not None
        models = dict(plan.models)
        assert models[f"processes of {name}"] == 3 * models["policy"]
        with pytest.raises(ConfigError, match=r"samples full models; use 'paged' or 'vllm' with model.lora"):
            resolve(config(f"engine.kind={name}", "model.lora.rank=2"))


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("loss.method", "bad_rows:NUMBER", "is a int; it must be a function or a row of class LossMethod"),
        ("loss.method", "bad_rows:JUDGE", "is a AnnotatorKind; it must be a function or a row of class LossMethod"),
        ("credit.method", "bad_rows:SOFT_CLIP", "is a LossMethod; it must be a function or a row of class Credit"),
        ("engine.kind", "bad_rows:NOT_BUILT", "is an engine row without `build`"),
        ("engine.kind", "bad_rows:LOOSE", r"its options are \{'copies': 2\}; use a subclass of EngineOptions"),
        ("loss.method", "bad_rows:MISSPELT", "its stale is 'decoupeld'; it must be one of 'decoupled', 'sequence'"),
        ("engine.kind", "twain", f"neither one of {', '.join(ENGINE_KINDS)} nor a path"),
        ("loss.method", "gone", r"unknown loss 'gone'.*known: ppo"),
        ("loss.method", "twice", r"provided more than once \(bad_rows and second_rows\); use the import path of one"),
        ("loss.method", "ppo", r"loss.method='ppo' is provided more than once \(built in and bad_rows\)"),
        ("loss.method", "old", "is not a module|No module named"),
        ("loss.method", "newer", r"package late_rows was made for 'turnwise>=9', and this is Turnwise .*; update one"),
        ("loss.method", "still", r"package late_rows was made for 'turnwise>=9', and this is Turnwise .*; update one"),
        ("loss.method", "raises", r"package odd_rows \(odd_rows:NEW, made for 'turnwise>=0.0.1'\) cannot .*TypeError"),
        ("loss.method", "lost", r"of the package bad_rows: bad_rows has no 'GONE'; it has "),
        ("loss.method", "leaves", r"package beside_rows \(beside_rows_late:NEW\) cannot .*SystemExit: 3"),
    ],
)
def test_what_leads_nowhere_is_refused_in_one_line(folder: Path, option: str, value: str, words: str) -> None:
    losses = {
        "twice": "bad_rows:SOFT_CLIP",
        "ppo": "bad_rows:SOFT_CLIP",
        "old": "no_such_module:X",
        "lost": "bad_rows:GONE",
    }
    install(folder, "bad_rows", {"turnwise.losses": losses})
    install(folder, "second_rows", {"turnwise.losses": {"twice": "second_rows:SOFT_CLIP"}})
    late = {"turnwise.losses": {"newer": "late_rows:NEW", "still": "bad_rows:SOFT_CLIP"}}
    install(folder, "late_rows", late, requires="turnwise>=9")
    install(folder, "odd_rows", {"turnwise.losses": {"raises": "odd_rows:NEW"}}, requires="turnwise>=0.0.1")
    # The requirement of another package, whose name starts with that of Turnwise, is none of Turnwise.
    leaves = {"turnwise.losses": {"leaves": "beside_rows_late:NEW"}}
    install(folder, "beside_rows", leaves, requires="turnwise-dice>=9")
    (folder / "beside_rows_late.py").write_text("raise SystemExit(3)\n")
    (folder / "late_rows.py").write_text("import no_such_module\n")  # not reached
    (folder / "odd_rows.py").write_text(
        "from turnwise.algorithms.losses.method import LossMethod\nNEW = LossMethod(name='newer', gpu_kernel=3)\n"
    )
    with pytest.raises(ConfigError, match=words) as raised:
        resolve(config(f"{option}={value}"))
    assert "\n" not in str(raised.value)
    assert str(raised.value).startswith(option)


def test_a_plan_that_cannot_be_made_is_one_line(folder: Path) -> None:
    install(folder, "vague_rows", {})
    recipe = config("engine.kind=vague_rows:VAGUE", "train.micro_batch_tokens=1024")
    with pytest.raises(
        ConfigError, match=r"engine.kind='vague_rows:VAGUE': its predict returned a int; return a Footprint"
    ):
        plan_memory(read_forecast_settings(resolve(recipe)))


def test_a_name_that_nobody_offers_is_answered_with_those_that_are(folder: Path) -> None:
    install(folder, "rows_on_offer", {"turnwise.losses": {"soft_clip": "rows_on_offer:SOFT_CLIP"}})
    with pytest.raises(ConfigError, match=r"unknown loss 'soft'.*offered by installed packages: soft_clip"):
        resolve(config("loss.method=soft"))


def test_a_loss_of_a_package_trains_as_it_computes(folder: Path) -> None:
    install(folder, "rows_that_train", {})
    from turnwise.algorithms.losses.inputs import LossInputs

    loss = build_policy_loss(resolve(config("loss.method=rows_that_train:SOFT_CLIP")))
    policy = torch.tensor([-0.5], requires_grad=True)
    ones = torch.ones(1)
    inputs = LossInputs(
        policy_logprobs=policy,
        old_logprobs=-ones,
        behavior_logprobs=-ones,
        advantages=2.0 * ones,
        sequence=torch.zeros(1, dtype=torch.int64),
    )
    # -2 * 0.2 * tanh(0.5 / 0.2)
    assert loss.function(inputs).losses.item() == pytest.approx(-0.4 * np.tanh(2.5))
