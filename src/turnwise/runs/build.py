"""What samples: the objects of a recipe besides those that train."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils.logging import disable_progress_bar

from turnwise.building.families import build_family
from turnwise.building.forecasting import read_forecast_settings
from turnwise.building.resolved import Resolved, resolve
from turnwise.building.sizes import measure_recipe
from turnwise.config.catalog import find_model
from turnwise.config.engine_kinds.table import find_engine_kind
from turnwise.config.resolve import check_engine_fits
from turnwise.config.roles import list_learners
from turnwise.config.run import RunConfig
from turnwise.core.errors import CheckpointError, ConfigError
from turnwise.core.pictures import Pictures
from turnwise.core.protocols import Engine, EnvironmentFamily, Renderer
from turnwise.core.seeds import derive_seed
from turnwise.core.types import Grammar, ToolSpec
from turnwise.engines.guided import GrammarCompiler
from turnwise.engines.registry import build_engine, check_engine, check_recording
from turnwise.engines.settings import EngineSettings
from turnwise.environments.mixture import list_families
from turnwise.forecast.fit import fit_memory
from turnwise.hosts.host import Host
from turnwise.hosts.local import LocalHost
from turnwise.judging.limits import LimitedJudge
from turnwise.models.allocator import keep_freed_memory
from turnwise.models.build import build_model, choose_device, load_model
from turnwise.models.lora import add_adapter, holds_adapter, load_adapter
from turnwise.models.machine_memory import read_memory_size
from turnwise.models.vision.building import complete_config
from turnwise.models.vocabulary import check_vocabulary, choose_vocab_size
from turnwise.pictures.store import PictureStore
from turnwise.remote.pool import RolloutPool
from turnwise.rendering.call_grammar import build_call_grammar
from turnwise.rendering.images import find_pictures
from turnwise.rendering.stability import check_prefix_stable
from turnwise.rendering.tokenizer import load_tokenizer
from turnwise.rollout.attempt import Sampling
from turnwise.rollout.limits import Limits
from turnwise.rollout.live import Endpoints
from turnwise.rollout.meter import MeteredEngine
from turnwise.rollout.past import SnapshotPool
from turnwise.rollout.policies import RolePolicy
from turnwise.rollout.workers import FailurePolicy, RolloutWorker
from turnwise.runs.judges import build_judges
from turnwise.runs.layouts import let_see
from turnwise.runs.model_path import describe_model_path, settle_model
from turnwise.runs.openings import open_first
from turnwise.runs.remote import build_host, build_rollouts
from turnwise.runs.renderer import (
    build_renderer,
    build_tokenizer,
    describe_renderer,
    load_checkpoint_tokenizer,
    load_own_tokenizer,
    resolve_renderer,
)
from turnwise.runs.roles import bind_roles, read_bindings
from turnwise.store.checkpoint_folder import policy_folder
from turnwise.sync.copied import copy_for_serving

MAX_GUIDED_CALLS = 8
"""Calls in one reply where a grammar holds it to them."""


def find_device(config: RunConfig) -> torch.device:
    """Where the recipe's models live on this machine.

    Raises ConfigError if `model.device` is unavailable or the engine's options do not fit it.
    """
    device = choose_device(config.model.device)
    kind = find_engine_kind(config.engine.kind)
    check_engine_fits(config, kind)
    check_engine(kind, common=engine_settings(config), options=config.engine.options, device=device.type)
    return device


def fit_to_machine(resolved: Resolved) -> Resolved:
    """The same with `train.micro_batch_tokens` chosen for this machine; raises ConfigError as `fit_memory` and
    `find_device` do."""
    config, copies = resolved.config, resolved.copies
    device, shapes = find_device(config), measure_recipe(config, copies)
    memory_bytes = read_memory_size(device)
    settings = read_forecast_settings(resolved)
    fitted = fit_memory(settings, memory_bytes=memory_bytes, shapes=shapes, device=device.type)
    train = config.train.model_copy(update={"micro_batch_tokens": fitted})
    return replace(resolved, config=config.model_copy(update={"train": train}))


def load_checkpoint(
    config: RunConfig, path: Path, tokenizer: PreTrainedTokenizerBase, *, source: str = "checkpoint"
) -> PreTrainedModel:
    """The policy of a checkpoint on its device; if that holds an adapter, on the recipe's model.

    `source` says in errors what `path` is. Raises CheckpointError for a checkpoint that is broken or of another model,
    ConfigError for another source.
    """
    disable_progress_bar()
    device = find_device(config)
    base = _build_base_model(config, tokenizer) if holds_adapter(path) else None
    try:
        if base is not None:
            return load_adapter(base, path, base=config.model.path)
        model = load_model(
            path,
            dtype=config.model.dtype,
            trust_remote_code=config.model.trust_remote_code and source == "checkpoint",
            device=device,
            source=source,
        )
        check_vocabulary(model, tokenizer, f"{source}={str(path)!r}")
    except ConfigError as cause:
        if source != "checkpoint":
            raise
        raise CheckpointError(str(cause)) from cause
    return settle_model(config, model)


def build_policy_model(config: RunConfig, tokenizer: PreTrainedTokenizerBase, learner: str = "") -> PreTrainedModel:
    """The policy of a learner on its device: loaded from `model.path`, or random weights from `model.config`, which
    follow from its name; with `model.lora` an adapter on it."""
    path = (learner,) if learner else ()
    model, lora, base = _build_base_model(config, tokenizer, *path), config.model.lora, config.model.path
    if lora is None:
        return model
    if lora.path:
        return load_adapter(model, find_model(lora.path), base=base, dropout=lora.dropout)
    return add_adapter(
        model,
        rank=lora.rank,
        alpha=lora.alpha,
        dropout=lora.dropout,
        target_modules=lora.target_modules,
        base=base,
        seed=derive_seed(config.run.seed, "adapter", *path),
    )


def _build_base_model(config: RunConfig, tokenizer: PreTrainedTokenizerBase, *name: str) -> PreTrainedModel:
    if config.model.path:
        path = find_model(config.model.path)
        trusts = config.model.trust_remote_code
        model = load_model(path, dtype=config.model.dtype, trust_remote_code=trusts, device=find_device(config))
        check_vocabulary(model, tokenizer, f"model.path={config.model.path!r}")
        return settle_model(config, model)
    # Classes have end tokens of their own by default, which mean nothing to this tokenizer.
    ends = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
    built = build_model(
        config.model.model_type,
        {**ends, **complete_config(config.model.model_type, config.model.config, tokenizer)},
        vocab_size=choose_vocab_size(config.model.config, tokenizer),
        seed=derive_seed(config.run.seed, "model", *name),
        dtype=config.model.dtype,
        device=find_device(config),
    )
    return settle_model(config, built)


@dataclass(frozen=True, kw_only=True)
class NamedLearner:
    """A policy that learns besides the first one."""

    model: PreTrainedModel
    engine: Engine
    """Samples from `model` itself."""


@dataclass(frozen=True, kw_only=True)
class System:
    """What samples: an environment family, a tokenizer, a renderer, a policy and the engine that samples from it."""

    config: RunConfig
    family: EnvironmentFamily
    tokenizer: PreTrainedTokenizerBase
    renderer: Renderer
    renderer_note: str = ""
    """One line for people: why this renderer; empty where the recipe names it and there is nothing to say."""
    model: PreTrainedModel
    """The policy: what a trainer changes."""
    model_note: str = ""
    """One line for people: how the policy computes, and why."""
    served: PreTrainedModel
    """What the engine samples from: `model` itself, or a copy where rollouts go on while the trainer steps."""
    engine: MeteredEngine
    policies: Mapping[str, RolePolicy] = field(default_factory=dict)
    """What speaks for the roles that the first learner does not play, by role."""
    others: Mapping[str, NamedLearner] = field(default_factory=dict)
    """Learners besides the first, by name."""
    judges: Mapping[str, LimitedJudge] = field(default_factory=dict)
    """Judges that environments may ask while they score, by name."""
    past: SnapshotPool | None = None
    """Snapshots of the run that play roles; None where none do."""
    rollouts: RolloutPool | None = None
    """Processes that play trajectories; None where the process of the run does."""
    host: Host = field(default_factory=LocalHost)
    """Where processes live."""

    @cached_property
    def endpoints(self) -> Endpoints:
        """Serves programs that ask for replies by themselves; starts with the first of them."""
        longest = find_longest_token(self.tokenizer)
        return Endpoints(lambda ids: str(self.tokenizer.decode(list(ids))), longest_token=longest)

    @cached_property
    def resolved(self) -> Resolved:
        """What the recipe means."""
        return resolve(self.config)

    @property
    def notes(self) -> Sequence[tuple[str, str]]:
        """What a reader of a run or an evaluation should know, one line each, with the kind of its event."""
        rows = [("environment", text) for family in list_families(self.family) for text in getattr(family, "notes", ())]
        own = [("model", f"model: {self.model_note}"), ("renderer", f"renderer: {self.renderer_note}")]
        said = (self.model_note, self.renderer_note)
        return [*rows, *(note for note, text in zip(own, said, strict=True) if text)]

    @property
    def meter(self) -> MeteredEngine | RolloutPool:
        """What samples the trajectories of the run."""
        return self.rollouts or self.engine

    async def close(self) -> None:
        """Close the engines of all roles, and end what runs elsewhere."""
        await self.endpoints.close()
        if self.rollouts is not None:
            await self.rollouts.close()
        for engine in (self.engine, *(other.engine for other in self.others.values())):
            await engine.close()
        for policy in self.policies.values():
            await policy.close()
        for judge in self.judges.values():
            await judge.close()
        self.host.close()

    def worker(self, mode: Literal["train", "evaluate"], changes: Mapping[str, Any] | None = None) -> RolloutWorker:
        """A rollout worker that samples as training or as evaluation does, with these `changes` of the environment's
        arguments."""
        config = self.config
        rollout, evaluate, training = config.rollout, config.evaluate, mode == "train"
        guided = (rollout if training else evaluate).grammar == "calls"
        seed = derive_seed(config.run.seed, "rollout" if training else "evaluate")
        build_grammar = build_reply_grammar if guided else None
        sampling = Sampling(temperature=rollout.temperature, build_grammar=build_grammar, seed=seed)
        if not training:
            sampling = Sampling(
                temperature=evaluate.temperature,
                top_p=evaluate.top_p,
                top_k=evaluate.top_k,
                min_p=evaluate.min_p,
                build_grammar=build_grammar,
                seed=seed,
            )
        return RolloutWorker(
            build_environment=(build_family(config, changes) if changes else self.family).build_environment,
            engine=self.engine,
            renderer=self.renderer,
            limits=Limits(
                max_turns=rollout.max_turns,
                max_turn_tokens=rollout.max_turn_tokens,
                max_tokens=rollout.max_tokens,
                timeout_s=rollout.trajectory_timeout_s,
            ),
            sampling=sampling,
            elsewhere=None if self.rollouts is None else partial(self.rollouts.play, changes=changes or {}),
            failure=FailurePolicy(max_retries=rollout.max_retries, max_invalid_share=rollout.max_invalid_share),
            max_open=rollout.max_open or config.engine.max_concurrency,
            scope=mode,
            policies=self.policies,
            judges=self.judges,
            endpoints=self.endpoints,
        )


def build_system(
    config: RunConfig,
    checkpoint: Path | None = None,
    *,
    training: bool = False,
    tokenizer: PreTrainedTokenizerBase | None = None,
    pictures: PictureStore | None = None,
) -> System:
    """Build everything that samples. With `checkpoint`, tokenizer and model come from that Hugging Face directory;
    `tokenizer` None is the checkpoint's or the recipe's. `pictures` None keeps what is shown in memory.

    All that holds tensors is on `find_device(config)`. With `training` the engine samples from a copy of the weights
    where the schedule lets rollouts go on during a step, and rollout processes play. Raises ConfigError naming what
    does not fit.
    """
    if not config.train.micro_batch_tokens:
        config = fit_to_machine(resolve(config)).config
    disable_progress_bar()
    keep_freed_memory()
    family = build_family(config)
    bindings = read_bindings(config, family)
    loaded = tokenizer or (load_checkpoint_tokenizer(config, checkpoint) if checkpoint else load_own_tokenizer(config))
    choice = resolve_renderer(config, family, loaded)
    tokenizer = loaded or build_tokenizer(config, family, choice)
    pictures = pictures or PictureStore(None)
    renderer = build_renderer(config, choice, tokenizer, checkpoint, pictures)
    model = load_checkpoint(config, checkpoint, tokenizer) if checkpoint else build_policy_model(config, tokenizer)
    let_see(config, model, tokenizer, pictures)
    # A run is evaluated without the packages of its credit method and loss.
    resolved = resolve(config) if training else None
    if resolved is not None and config.train.steps and resolved.algorithm.has_credit:
        check_recording(resolved.engine, model)
    served = copy_for_serving(model) if resolved is not None and resolved.copies.has_served else model
    host = build_host(config) if training else LocalHost()
    engine = MeteredEngine(build_policy_engine(config, served, tokenizer, host))

    def load_engine(path: Path) -> Engine:
        return load_frozen_engine(config, path, tokenizer, pictures)

    others = {
        name: _build_learner(
            config, name, None if checkpoint is None else policy_folder(checkpoint, name), tokenizer, pictures
        )
        for name in list_learners(config.roles)
    }
    engines: dict[str, Engine] = {"": engine, **{name: other.engine for name, other in others.items()}}
    past = SnapshotPool(load_engine)
    policies = bind_roles(config, bindings, family, renderer, engines=engines, load_engine=load_engine, past=past)
    judges = build_judges(
        config,
        lambda path: (load_engine(find_model(path)), renderer),
        lambda: (engine, renderer),
        find_pictures(renderer),
    )
    elsewhere = training and config.rollout.num_workers
    return System(
        config=config,
        family=family,
        tokenizer=tokenizer,
        renderer=renderer,
        renderer_note=describe_renderer(choice, renderer),
        model=model,
        model_note=describe_model_path(config, model),
        served=served,
        engine=engine,
        policies=policies,
        others=others,
        judges=judges,
        past=past if past.roles else None,
        rollouts=build_rollouts(config, served, tokenizer, host, judges, pictures) if elsewhere else None,
        host=host,
    )


def _build_learner(
    config: RunConfig, name: str, checkpoint: Path | None, tokenizer: PreTrainedTokenizerBase, pictures: Pictures
) -> NamedLearner:
    if checkpoint is not None:
        model = load_checkpoint(config, checkpoint, tokenizer)
    else:
        model = build_policy_model(config, tokenizer, name)
    let_see(config, model, tokenizer, pictures)
    return NamedLearner(model=model, engine=build_policy_engine(config, model, tokenizer))


def load_frozen_engine(
    config: RunConfig, path: Path, tokenizer: PreTrainedTokenizerBase, pictures: Pictures | None = None
) -> Engine:
    """An engine on the checkpoint of a role that does not learn.

    Raises ConfigError where it cannot be loaded or its tokenizer has other tokens than the run's.
    """
    if load_tokenizer(path).get_vocab() != tokenizer.get_vocab():
        raise ConfigError(
            f"the tokenizer of {str(path)!r} has other tokens than this run's; a frozen role reads the same token ids, "
            "so use a checkpoint of a run with the same tokenizer, or set tokenizer.path"
        )
    model = load_checkpoint(config, path, tokenizer, source="frozen")
    return build_policy_engine(config, let_see(config, model, tokenizer, pictures or PictureStore(None)), tokenizer)


async def check_openings(system: System) -> None:
    """Prove for every family that the renderer is prefix-stable for its tools, and that grammars can be built.

    Raises ConfigError, RenderError or EngineError naming what does not fit.
    """
    for family in list_families(system.family):
        await _check_opening(system, family)


async def _check_opening(system: System, family: EnvironmentFamily) -> None:
    config, (_, _, opening) = system.config, await open_first(family)
    check_prefix_stable(system.renderer, system.tokenizer.decode, opening.messages, opening.tools)
    if "calls" in (config.rollout.grammar, config.evaluate.grammar):
        vocab_size = system.model.config.get_text_config().vocab_size
        check_grammar(opening.tools, system.renderer, system.tokenizer, vocab_size=vocab_size)


def build_policy_engine(
    config: RunConfig, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, host: Host | None = None
) -> Engine:
    """The recipe's engine, on the parameters of `model`; `host` None is this machine."""
    return build_engine(
        config.engine.kind,
        model,
        common=engine_settings(config),
        options=config.engine.options,
        grammars=GrammarCompiler(tokenizer, vocab_size=model.config.get_text_config().vocab_size),
        decode=tokenizer.decode,
        host=host,
    )


def engine_settings(config: RunConfig) -> EngineSettings:
    """What the recipe tells every engine."""
    engine = config.engine
    return EngineSettings(
        max_concurrency=engine.max_concurrency, max_context=engine.max_context, num_threads=engine.num_threads
    )


def find_longest_token(tokenizer: PreTrainedTokenizerBase) -> int:
    """Most characters of a text in one token. A token is spelled with at least as many."""
    return max(map(len, tokenizer.get_vocab()))


def build_reply_grammar(tools: Sequence[ToolSpec]) -> Grammar:
    """What a reply of a Qwen3 model may be: thoughts and text, then calls of these tools or none."""
    return build_call_grammar(tools, special_tokens=True, min_calls=0, max_calls=MAX_GUIDED_CALLS, reasoning=True)


def check_grammar(
    tools: Sequence[ToolSpec], renderer: Renderer, tokenizer: PreTrainedTokenizerBase, *, vocab_size: int
) -> None:
    """Raise ConfigError or EngineError, saying why, when replies with these tools cannot be held to their grammar."""
    if not tools:
        raise ConfigError("rollout.grammar or evaluate.grammar is 'calls', but the environment has no tool; use 'none'")
    GrammarCompiler(tokenizer, vocab_size=vocab_size).start(build_reply_grammar(tools), renderer.stop_token_ids)
