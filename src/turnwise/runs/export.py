"""Export a trained policy: a Hugging Face directory that other programs load, with a card of the recipe and results."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase

from turnwise.building.families import build_family
from turnwise.config.catalog import find_model
from turnwise.config.load import dump_resolved
from turnwise.config.run import RunConfig
from turnwise.core.errors import ConfigError
from turnwise.core.protocols import Renderer
from turnwise.models.build import load_model, num_parameters
from turnwise.models.folders import model_writer, save_tokenizer
from turnwise.models.lora import holds_adapter, merge_adapter
from turnwise.models.vision.eyes import save_processor
from turnwise.pictures.store import PictureStore
from turnwise.reporting.summaries import format_success, load_summaries, row_of
from turnwise.runs.build import build_policy_model, load_checkpoint
from turnwise.runs.data_files import find_task_changes
from turnwise.runs.evaluate import load_run
from turnwise.runs.export_usage import (
    USAGE,
    check_served,
    complete_template,
    describe_usage,
    read_usage,
    to_usage_json,
    write_usage,
)
from turnwise.runs.layouts import let_see
from turnwise.runs.renderer import (
    build_renderer,
    build_tokenizer,
    load_checkpoint_tokenizer,
    load_own_tokenizer,
    resolve_renderer,
)
from turnwise.store.checkpoint_folder import verify_checkpoint, whole_folder
from turnwise.store.chosen_checkpoints import find_checkpoint_of

RECIPE = "turnwise_recipe.json"
"""The resolved recipe, in the exported folder."""


def export_policy(path: Path, target: Path, *, dtype: str | None = None, step: int | str | None = None) -> Path:
    """Write the policy of a run folder, of one of its checkpoints, or of a named learner's folder in one, to `target`;
    `dtype` None keeps that of the run. `step` chooses the checkpoint of a run folder (None: the latest).

    Raises CheckpointError if there is no whole checkpoint, StoreError if `path` belongs to no run, ConfigError if
    `target` exists.
    """
    run, checkpoint = find_checkpoint(path, step)
    verify_checkpoint(whole_folder(checkpoint))
    folder, config = load_run(run, device="cpu")
    dtype = dtype or config.model.dtype
    tokenizer = load_checkpoint_tokenizer(config, checkpoint)
    model = let_see(config, load_policy(checkpoint, config, dtype, tokenizer), tokenizer, PictureStore(None))
    family = build_family(config)
    renderer = build_renderer(config, resolve_renderer(config, family, tokenizer), tokenizer, checkpoint)
    name_end_tokens(model, tokenizer, renderer)
    usage = read_usage(family)
    complete_template(tokenizer, renderer, usage)
    check = "; ".join([check_served(tokenizer, renderer, usage), *find_task_changes(folder.path, family)])
    table = to_usage_json(config, tokenizer, renderer, usage, check)
    with model_writer(target) as out:
        model.save_pretrained(out)
        save_processor(model, out)
        save_tokenizer(tokenizer, out)
        _add_older_names(out / "config.json")
        (out / USAGE).write_text(write_usage(table), encoding="utf-8")
        (out / RECIPE).write_text(json.dumps(dump_resolved(config), indent=1) + "\n", encoding="utf-8")
        _copy_licence(config, out)
        step = int(whole_folder(checkpoint).name.rpartition("_")[2])
        asked = describe_usage(table, usage)
        card = write_card(
            config, load_summaries(folder.path), step=step, model=model, dtype=dtype, renderer=renderer, asked=asked
        )
        (out / "README.md").write_text(card, encoding="utf-8")
    return target


def write_first_model(config: RunConfig, target: Path) -> Path:
    """Write the model and tokenizer that a run of a recipe begins with to `target`, for servers that are started before
    the run. Raises ConfigError if `target` exists."""
    family = build_family(config)
    loaded = load_own_tokenizer(config)
    tokenizer = loaded or build_tokenizer(config, family, resolve_renderer(config, family, loaded))
    model = let_see(config, build_policy_model(config, tokenizer), tokenizer, PictureStore(None))
    with model_writer(target) as out:
        model.save_pretrained(out)
        save_processor(model, out)
        save_tokenizer(tokenizer, out)
        _add_older_names(out / "config.json")
    return target


def find_checkpoint(path: Path, step: int | str | None = None) -> tuple[Path, Path]:
    """The run folder and the checkpoint that `path` means: that of `step` of a run (None: the latest), or the one it
    names.

    Raises CheckpointError if a run has none, ConfigError if `path` and `step` both name one.
    """
    whole = whole_folder(path)
    if whole.parent.name == "checkpoints":
        if step is not None:
            raise ConfigError(
                f"{path} is a checkpoint, but --step {step} names another; use --step with the run folder"
            )
        return whole.parent.parent, path
    run = load_run(path)[0].path
    return run, find_checkpoint_of(run, step)


def load_policy(checkpoint: Path, config: RunConfig, dtype: str, tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
    """The policy's whole weights in `dtype`, on the CPU; an adapter is merged into its base."""
    if holds_adapter(checkpoint):
        model = config.model.model_copy(update={"dtype": dtype})
        return merge_adapter(load_checkpoint(config.model_copy(update={"model": model}), checkpoint, tokenizer))
    trusts = config.model.trust_remote_code
    return load_model(checkpoint, dtype=dtype, trust_remote_code=trusts, source="checkpoint")


def name_end_tokens(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, renderer: Renderer) -> None:
    """Set in config and generation config which tokens end a reply: the tokenizer's, and those of the run's format."""
    config = model.config.get_text_config()
    if tokenizer.eos_token_id is not None:
        config.eos_token_id = tokenizer.eos_token_id
    ends = dict.fromkeys([config.eos_token_id, *renderer.stop_token_ids])
    model.generation_config = GenerationConfig(
        bos_token_id=config.bos_token_id,
        eos_token_id=[token for token in ends if token is not None],
        pad_token_id=tokenizer.pad_token_id,
        stop_strings=list(renderer.stop) or None,
        do_sample=True,
        temperature=1.0,
    )


def _add_older_names(file: Path) -> None:
    """Write keys as older readers expect them, beside the ones transformers 5 writes; both say the same.

    A reader that knows no `rope_parameters` would otherwise turn positions by its own default, without any error.
    """
    table: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    table["torch_dtype"] = table["dtype"]
    for part in (table, table.get("text_config") or {}):
        rope = part.get("rope_parameters") or {}
        if rope.get("rope_type") == "default" and "rope_theta" in rope:
            part["rope_theta"] = rope["rope_theta"]
    file.write_text(json.dumps(table, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def _copy_licence(config: RunConfig, out: Path) -> None:
    """Copy the licence of the model that training started from, if its folder has one."""
    if not config.model.path:
        return
    try:
        licence = find_model(config.model.path) / "LICENSE"
    except ConfigError:  # the model it started from has left the cache
        return
    if licence.is_file():
        shutil.copyfile(licence, out / "LICENSE")


def write_card(
    config: RunConfig,
    summaries: list[dict[str, Any]],
    *,
    step: int,
    model: PreTrainedModel,
    dtype: str,
    renderer: Renderer,
    asked: str,
) -> str:
    """The text of README.md: where the weights come from, how it is `asked`, how replies end, and what the run
    measured."""
    start = f"`{config.model.path}`" if config.model.path else "random weights"
    rows = []
    for summary in summaries:
        row = row_of(summary, "all")
        if row is not None and summary["step"] <= step:
            rows.append(f"| {summary['label']} | {summary['step']} | {row['n']} | {format_success(row)} |")
    results = "\n".join(["| held-out tasks | RL step | tasks | success [95% interval] |", "|---|---|---|---|", *rows])
    stops = ", ".join(f"`{text}`" for text in renderer.stop)
    return f"""# {config.run.name}

A policy trained with Turnwise from {start}: {config.train.algorithm.replace("_", " ")}, credit {config.credit.method},
{step} RL steps of {config.rollout.tasks_per_step} tasks with {config.rollout.group_size} attempts each, on
`{config.environment.name}`. {num_parameters(model):,} parameters in {dtype}. `{RECIPE}` is the whole recipe.

Conversations were written by the renderer "{config.renderer.kind}". A reply ends with one of the tokens
{model.generation_config.eos_token_id}{f" or one of the texts {stops}" if stops else ""} (`generation_config.json`).

## How to ask it

{asked}

## Results of the run

{results if rows else "The run stored no evaluation."}
"""
