"""Check that the sections of a recipe fit together; the only module that compares two sections.

A credit method or a loss checks its own options and combinations when it is built, before anything else."""

from __future__ import annotations

from turnwise.config.credit import ShapingSection
from turnwise.config.engine_kinds.kind import EngineKind
from turnwise.config.engine_kinds.table import ENGINE_KINDS, list_kinds
from turnwise.config.learning import ADAMW
from turnwise.config.lora import LoraSection
from turnwise.config.run import RunConfig
from turnwise.config.train_algorithms.table import find_algorithm
from turnwise.core.errors import ConfigError

Problem = tuple[bool, str]
"""Whether something is wrong, and the error message if it is."""

CALL_FORMATS = ("qwen3",)
"""Chat renderers for whose calls `rendering.call_grammar` builds a grammar."""


def check_sections(config: RunConfig) -> RunConfig:
    """Return the config if its sections fit together; else raise ConfigError naming the keys, values and remedy."""
    checks = (
        _environment_problems,
        _sampling_problems,
        _engine_problems,
        _grammar_problems,
        _credit_problems,
        _loss_problems,
        _schedule_problems,
        _algorithm_problems,
        _adapter_problems,
        _optimizer_problems,
        _rate_problems,
        _warmup_problems,
        _pretraining_problems,
    )
    for broken, message in (problem for check in checks for problem in check(config)):
        if broken:
            raise ConfigError(message)
    return config


def check_engine_fits(config: RunConfig, kind: EngineKind) -> None:
    """Raise ConfigError where the recipe asks for what engines of a kind do not do, with the remedy."""
    for broken, message in _list_engine_problems(config, kind):
        if broken:
            raise ConfigError(message)


def _engine_problems(config: RunConfig) -> list[Problem]:
    """Of a kind that is built in; another one is imported when the recipe is resolved, not when it is read."""
    name = config.engine.kind
    return _list_engine_problems(config, ENGINE_KINDS[name]) if name in ENGINE_KINDS else []


def _list_engine_problems(config: RunConfig, kind: EngineKind) -> list[Problem]:
    name, rollout, lora = kind.name, config.rollout, config.model.lora
    weighty = [role for role, text in config.roles.items() if text.startswith(("learns:", "frozen:", "past:"))]
    guided = [section for section in ("rollout", "evaluate") if getattr(config, section).grammar == "calls"]
    return [
        (
            bool(kind.one_policy and weighty),
            f"engine.kind={name!r} with separate weights for {', '.join(weighty)} in roles: {kind.one_policy}; use "
            "'paged' or 'vllm'",
        ),
        (
            bool(kind.one_policy) and rollout.num_workers > 0,
            f"engine.kind={name!r} with rollout.num_workers={rollout.num_workers}: each rollout process would publish "
            "to the same servers; use rollout.num_workers=0, or 'vllm'",
        ),
        (
            not kind.samples_adapters and lora is not None,
            f"engine.kind={name!r} only samples full models; use 'paged' or 'vllm' with model.lora",
        ),
        (
            lora is not None and kind.max_adapter_rank is not None and lora.rank > kind.max_adapter_rank,
            f"model.lora.rank={lora and lora.rank} with engine.kind={name!r}, which supports adapters up to rank "
            f"{kind.max_adapter_rank}; lower it, or use 'paged'",
        ),
        (
            bool(guided) and not kind.follows_grammars,
            f"{guided and guided[0]}.grammar='calls' needs engine.kind="
            f"{list_kinds(lambda each: each.follows_grammars)}, not {name!r}",
        ),
    ]


def _environment_problems(config: RunConfig) -> list[Problem]:
    environment = config.environment
    default = type(environment).model_fields["name"].default
    return [
        (
            bool(environment.mixture) and (bool(environment.args) or environment.name != default),
            f"environment.name={environment.name!r} with environment.args={environment.args!r} is ignored together "
            "with environment.mixture; move it into the mixture under its own label",
        ),
    ]


def _optimizer_problems(config: RunConfig) -> list[Problem]:
    """Options that the optimizer or its schedule does not read."""
    train = config.train
    is_adamw = train.optimizer == ADAMW
    fields = type(train).model_fields
    moved = [name for name in ("beta1", "beta2") if getattr(train, name) != fields[name].default]
    named = [name for name in ("lr", "betas", "weight_decay", "fused") if name in train.optimizer_options]
    return [
        (
            train.decay == "none" and train.min_lr_ratio > 0,
            f"train.min_lr_ratio={train.min_lr_ratio} is the end of a decay, but train.decay='none' has none; set it "
            "to 0, or set train.decay",
        ),
        (
            not is_adamw and bool(moved),
            f"only train.optimizer={ADAMW!r} uses {' and '.join(f'train.{name}' for name in moved)}; set the options "
            f"of {train.optimizer!r} in train.optimizer_options",
        ),
        (
            bool(named),
            f"train.optimizer_options cannot set {' and '.join(named)}; use train.lr, train.beta1, train.beta2, "
            "train.weight_decay",
        ),
    ]


def _rate_problems(config: RunConfig) -> list[Problem]:
    """Learning rates that would be guessed."""
    train, sft, path = config.train, config.sft, config.model.path
    remedy = "1e-5 to 1e-4 suit an adapter" if config.model.lora is not None else "1e-6 suits all weights"
    return [
        (
            bool(path) and train.steps > 0 and "lr" not in train.model_fields_set,
            f"train.lr is not set with model.path={path!r}, and the default of {train.lr:g} is for random weights; set "
            f"it ({remedy}), or train.steps=0",
        ),
        (
            bool(path) and sft.steps > 0 and "lr" not in sft.model_fields_set,
            f"sft.lr is not set with model.path={path!r}, and the default of {sft.lr:g} is for random weights; set it "
            f"({remedy}), or sft.steps=0",
        ),
        (
            bool(path) and config.cpt.steps > 0 and "lr" not in config.cpt.model_fields_set,
            f"cpt.lr is not set with model.path={path!r}, and the default of {config.cpt.lr:g} is for random weights; "
            f"set it ({remedy}), or cpt.steps=0",
        ),
    ]


def _warmup_problems(config: RunConfig) -> list[Problem]:
    """Files of conversations that nothing would read."""
    sft = config.sft
    return [
        (
            bool(sft.path) and not sft.steps,
            f"sft.path={sft.path!r} is for the warm-up, but sft.steps=0 skips it; set sft.steps (a pass over the file "
            "is its number of rows divided by sft.batch_size)",
        ),
        (
            bool(sft.heldout_path) and not sft.path,
            f"sft.heldout_path={sft.heldout_path!r} is only measured with sft.path, which is empty; set sft.path",
        ),
    ]


def _pretraining_problems(config: RunConfig) -> list[Problem]:
    """Documents that nothing would read, or that do not fit."""
    cpt, most = config.cpt, config.engine.max_context
    named = [name for name in ("path", "builder") if getattr(cpt, name)]
    return [
        (
            bool(named) and not cpt.steps,
            f"cpt.{' and cpt.'.join(named)} name documents, but cpt.steps=0 skips the phase; set cpt.steps",
        ),
        (
            cpt.steps > 0 and len(named) != 1,
            f"cpt.steps={cpt.steps} needs documents: set one of cpt.path and cpt.builder, not {len(named)} of them",
        ),
        (bool(cpt.args) and not cpt.builder, "cpt.args are arguments of cpt.builder, which is empty; set cpt.builder"),
        (
            bool(cpt.builder) and ":" not in cpt.builder,
            f"cpt.builder={cpt.builder!r} is no import path; write it as package.module:function",
        ),
        (
            cpt.steps > 0 and cpt.max_tokens > most,
            f"cpt.max_tokens={cpt.max_tokens} is more than engine.max_context={most}, the longest sequence of the "
            "model; lower the one or raise the other",
        ),
        (
            cpt.steps > 0 and cpt.batch_tokens < cpt.max_tokens - 1,
            f"cpt.batch_tokens={cpt.batch_tokens} has no room for one sequence of cpt.max_tokens={cpt.max_tokens}; "
            "raise the one or lower the other",
        ),
    ]


def _adapter_problems(config: RunConfig) -> list[Problem]:
    lora = config.model.lora
    if lora is None:
        return []
    own = [name for name in ("rank", "alpha", "target_modules") if getattr(lora, name) != getattr(LoraSection(), name)]
    return [
        (
            bool(lora.path) and bool(own),
            f"model.lora.path={lora.path!r} has its own {' and '.join(own)}; remove "
            f"{' and '.join(f'model.lora.{name}' for name in own)}",
        ),
        (lora.target_modules == [], "model.lora.target_modules=[] leaves nothing to train; name a layer"),
    ]


def _sampling_problems(config: RunConfig) -> list[Problem]:
    rollout, engine = config.rollout, config.engine
    return [
        (
            config.evaluate.samples > 1 and config.evaluate.temperature == 0,
            f"evaluate.samples={config.evaluate.samples} with evaluate.temperature=0: all greedy attempts at a task "
            "are the same; set evaluate.temperature (1.0 samples as in training), or evaluate.samples=1",
        ),
        (
            rollout.max_turn_tokens >= rollout.max_tokens,
            f"rollout.max_turn_tokens={rollout.max_turn_tokens} leaves no room for a prompt within "
            f"rollout.max_tokens={rollout.max_tokens}; lower rollout.max_turn_tokens",
        ),
        (
            rollout.train_members > rollout.group_size,
            f"rollout.train_members={rollout.train_members} is more than rollout.group_size={rollout.group_size}; "
            "lower it, or use 0 to train all",
        ),
        (
            rollout.train_members > 0 and config.schedule.overdraw > 0,
            f"rollout.train_members={rollout.train_members} trains members by number, and "
            f"schedule.overdraw={config.schedule.overdraw} keeps those that finish first; set one of them to 0",
        ),
        (
            rollout.train_members > 0 and not find_algorithm(config.train.algorithm).has_credit,
            f"rollout.train_members={rollout.train_members} leaves members in credit but out of the loss, and "
            f"train.algorithm={config.train.algorithm!r} uses no credit method; use 0",
        ),
        (
            not rollout.train_truncated and find_algorithm(config.train.algorithm).has_pairs,
            "rollout.train_truncated=false keeps trajectories in credit but out of the loss, and "
            f"train.algorithm={config.train.algorithm!r} uses no credit method; set it to true",
        ),
        (
            rollout.max_tokens > engine.max_context,
            f"rollout.max_tokens={rollout.max_tokens} does not fit in engine.max_context={engine.max_context}; raise "
            "engine.max_context",
        ),
        (
            bool(rollout.dynamic_sampling.metric) and rollout.group_size < 2,
            f"rollout.dynamic_sampling.metric={rollout.dynamic_sampling.metric!r} looks for groups whose members "
            f"differ, but rollout.group_size={rollout.group_size} leaves nothing to compare; use at least 2",
        ),
    ]


def _grammar_problems(config: RunConfig) -> list[Problem]:
    renderer = config.renderer
    reasons = {
        "tags": "its calls contain free text between tags and cannot be malformed",
        "calls": "there is no grammar for its one call per line",
        "auto": "the kind is chosen later, and only renderer.kind='chat' supports a grammar",
        "template": "there is no grammar for calls written as text",
        "chat": f"renderer.name={renderer.name!r} may write calls in a different format than "
        f"{' or '.join(CALL_FORMATS)}",
    }
    problems = []
    for section, grammar in (("rollout", config.rollout.grammar), ("evaluate", config.evaluate.grammar)):
        guided = grammar == "calls"
        unsupported = renderer.kind != "chat" or renderer.name not in CALL_FORMATS
        problems += [
            (
                guided and unsupported,
                f"{section}.grammar='calls' with renderer.kind={renderer.kind!r}: {reasons[renderer.kind]}; use 'none'",
            ),
        ]
    return problems


def _credit_problems(config: RunConfig) -> list[Problem]:
    credit, critic, shaping = config.credit, config.critic, config.credit.shaping
    return [
        (
            "kl_coefficient" in credit.options,
            "credit.options.kl_coefficient: set loss.kl.coefficient and loss.kl.place='reward' instead; the method "
            "reads it from there",
        ),
        (
            shaping.max_tokens > 0 and not 0 < shaping.buffer <= shaping.max_tokens,
            f"credit.shaping.buffer={shaping.buffer} must lie between 1 and "
            f"credit.shaping.max_tokens={shaping.max_tokens}",
        ),
        (
            shaping.buffer > 0 and not shaping.max_tokens,
            f"credit.shaping.buffer={shaping.buffer} has no effect without credit.shaping.max_tokens; set it, or set "
            "the buffer to 0",
        ),
        (
            not find_algorithm(config.train.algorithm).has_credit and shaping != ShapingSection(),
            f"credit.shaping changes rewards before credit, but train.algorithm={config.train.algorithm!r} uses no "
            "credit method; leave it out",
        ),
        (
            critic.kind == "head" and critic.epochs != 1,
            f"critic.epochs={critic.epochs}: a head trains in the policy's updates; use loss.updates_per_step, "
            "loss.epochs or a separate critic",
        ),
        (
            critic.kind != "none" and not config.loss.mask_observations,
            f"critic.kind={critic.kind!r} has values only at sampled tokens; use loss.mask_observations=true",
        ),
    ]


def _loss_problems(config: RunConfig) -> list[Problem]:
    loss = config.loss
    return [
        (
            loss.kl.place == "reward" and loss.kl.coefficient > 0 and loss.kl.kind != "k1",
            f"loss.kl.kind={loss.kl.kind!r} with loss.kl.place='reward': only k1 is correct as a reward; use "
            "loss.kl.kind='k1'",
        ),
        (
            loss.kl.place == "loss" and loss.kl.coefficient > 0 and loss.kl.kind == "k1",
            "loss.kl.kind='k1' with loss.kl.place='loss': its expected gradient is 0; use k2, k3 or "
            "k3_with_k2_gradient, or place='reward'",
        ),
        (
            not loss.mask_observations and (loss.recompute_old is True or loss.correction.mode not in ("auto", "none")),
            "loss.mask_observations=false trains tokens that were not sampled and have no ratio to correct; use "
            "loss.recompute_old=false and loss.correction.mode='none'",
        ),
        (
            loss.kl.target > 0 and not loss.kl.coefficient,
            f"loss.kl.target={loss.kl.target} adapts loss.kl.coefficient by multiplying it, and 0 stays 0; start above "
            "0",
        ),
        (
            loss.entropy_target > 0 and not 0 <= loss.entropy_coefficient <= loss.max_entropy_coefficient,
            f"loss.entropy_coefficient={loss.entropy_coefficient} must start between 0 and "
            f"loss.max_entropy_coefficient={loss.max_entropy_coefficient} to follow loss.entropy_target",
        ),
        (
            loss.correction.mode == "second_moment" and (loss.correction.level != "token" or loss.correction.veto > 0),
            "loss.correction.mode='second_moment' ranks single tokens, using only loss.correction.max_second_moment; "
            "leave loss.correction.level at 'token' and the veto at 0",
        ),
        (
            loss.updates_per_step > (most := config.rollout.tasks_per_step * config.rollout.group_size),
            f"loss.updates_per_step={loss.updates_per_step} splits the {most} trajectories of a step into more parts "
            "than there are, so some of the optimizer steps in train.lr's schedule would never happen; lower it",
        ),
        (
            loss.correction.low > loss.correction.high,
            f"loss.correction.low={loss.correction.low} is above loss.correction.high={loss.correction.high}",
        ),
        (
            not loss.teacher.path and loss.teacher.replace_credit,
            "loss.teacher.replace_credit=true leaves nothing to learn from, because loss.teacher.path is empty; set it "
            "to a teacher's directory",
        ),
    ]


def _schedule_problems(config: RunConfig) -> list[Problem]:
    schedule, rollout = config.schedule, config.rollout
    most = (schedule.max_staleness + 1) * rollout.tasks_per_step
    starts = rollout.group_size + schedule.overdraw
    return [
        (
            0 < schedule.max_open_groups < rollout.tasks_per_step,
            f"schedule.max_open_groups={schedule.max_open_groups} is less than "
            f"rollout.tasks_per_step={rollout.tasks_per_step}, so no batch would ever be full; raise it, or use 0",
        ),
        (
            schedule.max_open_groups > most,
            f"schedule.max_open_groups={schedule.max_open_groups} is never reached: "
            f"schedule.max_staleness={schedule.max_staleness} allows {most} groups with "
            f"rollout.tasks_per_step={rollout.tasks_per_step}; lower it, or raise the staleness",
        ),
        (
            schedule.late != "wait" and not schedule.max_staleness,
            f"schedule.late={schedule.late!r} with schedule.max_staleness=0: a synchronous step waits for its only "
            "batch; use 'wait', and schedule.overdraw to cut its tail",
        ),
        (
            schedule.late == "cut" and schedule.min_members > rollout.group_size,
            f"schedule.min_members={schedule.min_members} is more than rollout.group_size={rollout.group_size}, so no "
            "group would ever be cut; lower it",
        ),
        (
            schedule.max_staleness > 0 and rollout.dynamic_sampling.refill == "value",
            "rollout.dynamic_sampling.refill='value' compares the tasks of one synchronous step; use 'new', or "
            "schedule.max_staleness=0",
        ),
        (
            schedule.overdraw > 0 and rollout.group_size < 2,
            f"schedule.overdraw={schedule.overdraw} keeps the first of {starts} members, rollout.group_size="
            f"{rollout.group_size}; use groups of at least 2",
        ),
    ]


def _algorithm_problems(config: RunConfig) -> list[Problem]:
    algorithm, preference, rejection = find_algorithm(config.train.algorithm), config.preference, config.rejection
    name, has_credit = algorithm.name, algorithm.has_credit
    return [
        (
            config.train.offload_to_cpu and config.train.ranks == 1,
            "train.offload_to_cpu=true needs ranks, but train.ranks=1; use train.ranks=2 or more, or false",
        ),
        (
            not has_credit and config.critic.kind != "none",
            f"train.algorithm={name!r} does not use critic.kind={config.critic.kind!r}; use critic.kind='none'",
        ),
        (
            not has_credit
            and bool(config.loss.kl.coefficient or config.loss.teacher.path or not config.loss.mask_observations),
            f"train.algorithm={name!r} has its own loss; drop loss.kl, loss.teacher and loss.mask_observations",
        ),
        (
            config.train.keep_best > 0 and not (config.evaluate.every and config.evaluate.tasks),
            f"train.keep_best={config.train.keep_best} ranks checkpoints by held-out success, but "
            f"evaluate.every={config.evaluate.every} and evaluate.tasks={config.evaluate.tasks}; set both above 0",
        ),
        *_selection_problems(config),
        (
            not has_credit and config.loss.epochs != 1,
            f"train.algorithm={name!r} ignores loss.epochs={config.loss.epochs}; set it to 1"
            + (f", and use {algorithm.passes_option}" if algorithm.passes_option else ""),
        ),
        (
            algorithm.has_pairs and config.loss.updates_per_step != 1,
            f"train.algorithm={name!r} makes one update per step from its pairs and ignores "
            f"loss.updates_per_step={config.loss.updates_per_step}; set it to 1",
        ),
        (
            algorithm.has_pairs and config.rollout.group_size < 2,
            f"train.algorithm={name!r} pairs the members of a group, but rollout.group_size is "
            f"{config.rollout.group_size}; use at least 2",
        ),
        (
            algorithm.pairs == "steps" and (preference.kind != "sigmoid" or preference.label_smoothing > 0),
            f"train.algorithm={name!r} has the plain sigmoid loss; preference.kind={preference.kind!r} and "
            f"preference.label_smoothing={preference.label_smoothing} are only for 'dpo'",
        ),
        (
            preference.kind == "ipo" and preference.label_smoothing > 0,
            f"preference.label_smoothing={preference.label_smoothing} is only for preference.kind='sigmoid'; set it to "
            "0 with 'ipo'",
        ),
        (
            rejection.first_threshold > rejection.last_threshold,
            f"rejection.first_threshold={rejection.first_threshold} is above "
            f"rejection.last_threshold={rejection.last_threshold}; the threshold must not fall",
        ),
    ]


def _selection_problems(config: RunConfig) -> list[Problem]:
    evaluate, train = config.evaluate, config.train
    own = (f"evaluate.selection_tasks={evaluate.selection_tasks}", f"train.patience={train.patience}")
    collide = sorted(set(evaluate.sets) & set(evaluate.controls))
    return [
        (
            train.patience > 0 and not (evaluate.every and evaluate.selection_tasks and train.keep_best),
            f"{own[1]} ends training by a selection set, but evaluate.every={evaluate.every}, {own[0]} and "
            f"train.keep_best={train.keep_best}; set all of them above 0",
        ),
        (
            evaluate.selection_tasks > 0 and not (evaluate.every and evaluate.tasks),
            f"{own[0]} chooses between evaluations, but evaluate.every={evaluate.every} and "
            f"evaluate.tasks={evaluate.tasks}; set both above 0",
        ),
        (
            bool(evaluate.sets) and not evaluate.tasks,
            f"evaluate.sets has {', '.join(evaluate.sets)}, but evaluate.tasks=0 disables evaluation; set it above 0",
        ),
        (
            bool(collide),
            f"evaluate.sets and evaluate.controls both have {', '.join(map(repr, collide))}; rename one of them",
        ),
        (
            evaluate.num_workers > 0 and bool(config.judges),
            f"evaluate.num_workers={evaluate.num_workers} with [judges]: a judge's places, cache and budget count once "
            "in a run, and evaluation processes do not share them; use evaluate.num_workers=0",
        ),
    ]
