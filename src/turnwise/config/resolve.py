"""What sections must agree on, whichever methods they name.

`runs/methods.py` checks credit methods and losses, their options and what they need of other sections, before anything
is built."""

from __future__ import annotations

from turnwise.config.run import RunConfig
from turnwise.core.errors import ConfigError

Problem = tuple[bool, str]
"""Whether something is wrong, and what to say then."""


CPU_ONLY_WORKERS = (
    "engine workers read the weights from memory that processes share, which is the CPU's; use "
    "engine.num_workers=1 or model.device='cpu'"
)
GPU_ONLY_GRAPHS = "graphs are recorded on a GPU; use engine.cuda_graphs=false or model.device='cuda'"
CALL_FORMATS = ("qwen3",)
"""Chat renderers whose calls `rendering.call_grammar` can write."""


def check_sections(config: RunConfig) -> RunConfig:
    """The config itself when its sections fit together. Raises ConfigError naming the keys, their values and the
    remedy."""
    checks = (
        _sampling_problems,
        _engine_problems,
        _grammar_problems,
        _credit_problems,
        _loss_problems,
        _algorithm_problems,
    )
    for broken, message in (problem for check in checks for problem in check(config)):
        if broken:
            raise ConfigError(message)
    return config


def _sampling_problems(config: RunConfig) -> list[Problem]:
    rollout, engine = config.rollout, config.engine
    return [
        (
            rollout.max_turn_tokens >= rollout.max_tokens,
            f"rollout.max_turn_tokens={rollout.max_turn_tokens} leaves no room for a prompt in "
            f"rollout.max_tokens={rollout.max_tokens}; lower the first",
        ),
        (
            not rollout.train_truncated and config.train.algorithm != "policy_gradient",
            "rollout.train_truncated=false keeps trajectories in credit and out of the loss, "
            f"train.algorithm={config.train.algorithm!r} "
            "has no credit; set it to true",
        ),
        (
            rollout.max_tokens > engine.max_context,
            f"rollout.max_tokens={rollout.max_tokens} does not fit in engine.max_context={engine.max_context}; "
            "raise the second",
        ),
        *(
            (
                value != whole,
                f"rollout.{name}={value} samples from a truncated distribution that the trainer does not score; "
                f"use {whole:g} and rollout.temperature",
            )
            for name, value, whole in (
                ("top_p", rollout.top_p, 1),
                ("top_k", rollout.top_k, 0),
                ("min_p", rollout.min_p, 0),
            )
        ),
        (
            bool(rollout.dynamic_sampling.metric) and rollout.group_size < 2,
            f"rollout.dynamic_sampling.metric={rollout.dynamic_sampling.metric!r} looks for groups whose members "
            "differ, "
            f"rollout.group_size={rollout.group_size} has nothing to compare; use at least 2",
        ),
        (
            not config.model.path and not config.model.config,
            "model.path is empty and so is model.config: name a Hugging Face directory, or the sizes of a model to "
            "start from scratch",
        ),
    ]


def _engine_problems(config: RunConfig) -> list[Problem]:
    engine, device = config.engine, config.model.device
    return [
        (
            engine.num_workers > 1 and (engine.kind != "paged" or engine.num_threads != 1),
            f"engine.num_workers={engine.num_workers} is for engine.kind='paged' and engine.num_threads=1, which "
            "each worker has; "
            f"here they are {engine.kind!r} and {engine.num_threads}",
        ),
        (
            engine.num_workers > 1 and device == "cuda",
            f"engine.num_workers={engine.num_workers} with model.device='cuda': {CPU_ONLY_WORKERS}",
        ),
        (
            engine.attention == "flex" and engine.kind != "paged",
            f"engine.attention='flex' reads pages, engine.kind={engine.kind!r} has none; use 'gather' or "
            "engine.kind='paged'",
        ),
        (
            engine.cuda_graphs and (engine.attention != "flex" or not engine.fused),
            "engine.cuda_graphs=true records steps of engine.attention='flex' and engine.fused=true; here they are "
            f"{engine.attention!r} "
            f"and {str(engine.fused).lower()}",
        ),
        (
            engine.cuda_graphs and device == "cpu",
            f"engine.cuda_graphs=true with model.device='cpu': {GPU_ONLY_GRAPHS}",
        ),
        (
            engine.cuda_graphs and engine.num_workers > 1,
            f"engine.cuda_graphs=true with engine.num_workers={engine.num_workers}: workers are for the CPU, "
            f"{GPU_ONLY_GRAPHS}",
        ),
    ]


def _grammar_problems(config: RunConfig) -> list[Problem]:
    renderer = config.renderer
    reasons = {
        "tags": "its calls hold free text between tags, so none can be malformed",
        "calls": "there is no grammar of its one call per line yet",
        "chat": f"renderer.name={renderer.name!r} may write calls in another way than {' or '.join(CALL_FORMATS)} does",
    }
    problems = []
    for section, grammar in (("rollout", config.rollout.grammar), ("evaluate", config.evaluate.grammar)):
        guided = grammar == "calls"
        unknown = renderer.kind != "chat" or renderer.name not in CALL_FORMATS
        problems += [
            (
                guided and unknown,
                f"{section}.grammar='calls' with renderer.kind={renderer.kind!r}: {reasons[renderer.kind]}; use 'none'",
            ),
            (
                guided and config.engine.kind != "paged",
                f"{section}.grammar='calls' needs engine.kind='paged', not {config.engine.kind!r}",
            ),
        ]
    return problems


def _credit_problems(config: RunConfig) -> list[Problem]:
    credit, critic, shaping = config.credit, config.critic, config.credit.shaping
    return [
        (
            "kl_coefficient" in credit.options,
            "credit.options.kl_coefficient: set loss.kl.coefficient and loss.kl.place='reward' instead; the method "
            "takes it from there",
        ),
        (
            shaping.max_tokens > 0 and not 0 < shaping.buffer <= shaping.max_tokens,
            f"credit.shaping.buffer={shaping.buffer} must lie between 1 and "
            f"credit.shaping.max_tokens={shaping.max_tokens}",
        ),
        (
            shaping.buffer > 0 and not shaping.max_tokens,
            f"credit.shaping.buffer={shaping.buffer} does nothing without credit.shaping.max_tokens; set it, or "
            "leave the buffer 0",
        ),
        (
            critic.kind == "head" and critic.epochs != 1,
            f"critic.epochs={critic.epochs}: a head trains in the policy's own updates; use loss.updates_per_step "
            "or a separate critic",
        ),
        (
            critic.kind != "none" and not config.loss.mask_observations,
            f"critic.kind={critic.kind!r} has values at sampled tokens only; use loss.mask_observations=true",
        ),
    ]


def _loss_problems(config: RunConfig) -> list[Problem]:
    loss = config.loss
    return [
        (
            loss.kl.place == "reward" and loss.kl.coefficient > 0 and loss.kl.kind != "k1",
            f"loss.kl.kind={loss.kl.kind!r} with loss.kl.place='reward': only k1 is right as a reward; set the kind "
            "to k1",
        ),
        (
            loss.kl.place == "loss" and loss.kl.coefficient > 0 and loss.kl.kind == "k1",
            "loss.kl.kind='k1' with loss.kl.place='loss': its expected gradient is 0; use k2, k3 or "
            "k3_with_k2_gradient, or place='reward'",
        ),
        (
            not loss.mask_observations and (loss.recompute_old is True or loss.correction.mode not in ("auto", "none")),
            "loss.mask_observations=false trains tokens nobody sampled, which have no ratio to correct; "
            "switch loss.recompute_old and loss.correction.mode off",
        ),
        (
            loss.kl.target > 0 and not loss.kl.coefficient,
            f"loss.kl.target={loss.kl.target} moves loss.kl.coefficient by a factor, and 0 stays 0; give it a first "
            "value above 0",
        ),
        (
            loss.entropy_target > 0 and not 0 <= loss.entropy_coefficient <= loss.max_entropy_coefficient,
            f"loss.entropy_coefficient={loss.entropy_coefficient} must start between 0 and "
            f"loss.max_entropy_coefficient={loss.max_entropy_coefficient} to follow loss.entropy_target",
        ),
        (
            loss.correction.mode == "second_moment" and (loss.correction.level != "token" or loss.correction.veto > 0),
            "loss.correction.mode='second_moment' ranks single tokens by loss.correction.max_second_moment alone; "
            "leave loss.correction.level at 'token' and the veto at 0",
        ),
        (
            loss.correction.low > loss.correction.high,
            f"loss.correction.low={loss.correction.low} is above loss.correction.high={loss.correction.high}",
        ),
        (
            not loss.teacher.path and loss.teacher.replace_credit,
            "loss.teacher.replace_credit=true leaves nothing to learn from: loss.teacher.path is empty; name a "
            "teacher's directory",
        ),
    ]


def _algorithm_problems(config: RunConfig) -> list[Problem]:
    algorithm, preference, rejection = config.train.algorithm, config.preference, config.rejection
    by_gradient = algorithm == "policy_gradient"
    return [
        (
            not by_gradient and config.critic.kind != "none",
            f"train.algorithm={algorithm!r} has no use for critic.kind={config.critic.kind!r}; set it to 'none'",
        ),
        (
            not by_gradient
            and bool(config.loss.kl.coefficient or config.loss.teacher.path or not config.loss.mask_observations),
            f"train.algorithm={algorithm!r} has a loss of its own; drop loss.kl, loss.teacher and "
            "loss.mask_observations",
        ),
        (
            not by_gradient and config.loss.updates_per_step != 1,
            f"train.algorithm={algorithm!r} does not read loss.updates_per_step={config.loss.updates_per_step}; for "
            "several passes of "
            "rejection sampling use rejection.passes",
        ),
        (
            algorithm in ("dpo", "step_dpo") and config.rollout.group_size < 2,
            f"train.algorithm={algorithm!r} pairs the members of a group, "
            f"rollout.group_size={config.rollout.group_size}; use at least 2",
        ),
        (
            algorithm == "step_dpo" and (preference.kind != "sigmoid" or preference.label_smoothing > 0),
            f"train.algorithm='step_dpo' has the plain sigmoid loss; preference.kind={preference.kind!r} and "
            f"preference.label_smoothing={preference.label_smoothing} belong to 'dpo'",
        ),
        (
            preference.kind == "ipo" and preference.label_smoothing > 0,
            f"preference.label_smoothing={preference.label_smoothing} belongs to preference.kind='sigmoid'; set it "
            "to 0 with 'ipo'",
        ),
        (
            rejection.first_threshold > rejection.last_threshold,
            f"rejection.first_threshold={rejection.first_threshold} is above "
            f"rejection.last_threshold={rejection.last_threshold}; "
            "the bar must not fall",
        ),
    ]
