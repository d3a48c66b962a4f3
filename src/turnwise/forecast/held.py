"""The bytes of weights, gradients and moments that a run holds, model by model, for as long as it lives."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from turnwise.config.catalog import find_model
from turnwise.forecast.settings import ForecastSettings
from turnwise.models.shape import ModelShape, read_policy_shape, read_shape_at

BYTES: Mapping[str, int] = {"float32": 4, "float64": 8, "bfloat16": 2, "float16": 2}
HALF = 2
"""Bytes of a number of the formats in which a small step is lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shapes:
    """The sizes of all models of a run."""

    policy: ModelShape
    teacher: ModelShape | None = None
    """None where there is none, or its sizes are unknown: then it counts as one like the policy."""
    frozen: Mapping[str, ModelShape] = field(default_factory=dict)
    """Of the models of roles that do not learn, by path; one that is missing counts as one like the policy."""


def read_shapes(settings: ForecastSettings) -> Shapes | None:
    """The sizes that the config.json of each model names; None where those of the policy are unknown."""
    policy, copies = read_policy_shape(settings.model, vocab_size=settings.vocab_size), settings.copies
    if policy is None:
        return None
    frozen = {path: read_shape_at(path) for path in copies.frozen}
    return Shapes(
        policy=policy,
        teacher=read_shape_at(copies.teacher) if copies.teacher else None,
        frozen={path: shape for path, shape in frozen.items() if shape is not None},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """Bytes per number."""

    weight: int
    """Of a model as it computes."""
    trained: int
    """Of what is trained, as it lies in the model: an adapter has at least float32, and so have the rows of ranks."""
    master: int
    """Of the float32 copy of a trained weight on which the optimizer steps; 0 where it steps on the weight itself."""
    gradient: int
    moments: int
    """Of both moments of AdamW; another optimizer counts as that."""


def find_precision(settings: ForecastSettings) -> Precision:
    """The formats of a recipe. Moments and gradients have at least float32; so has what the optimizer steps on, which
    in one process without an adapter is a copy beside weights of a half format."""
    item = BYTES[settings.model.dtype]
    wide = max(item, 4)
    has_rows, is_adapted = settings.train.ranks > 1, settings.model.lora is not None
    return Precision(
        weight=item,
        trained=wide if has_rows or is_adapted else item,
        master=wide if item == HALF and not has_rows and not is_adapted else 0,
        gradient=wide,
        moments=2 * wide,
    )


def count_trained(settings: ForecastSettings, shape: ModelShape) -> int:
    """Parameters of the policy that are trained: all, or those of its adapter. An adapter that cannot be read counts as
    the default one; where the model was not measured, layers that Llama-like decoders lack are not counted."""
    lora = settings.model.lora
    if lora is None:
        return shape.num_parameters - (shape.tower.parameters if shape.tower and settings.model.freezes_vision else 0)
    rank, targets = lora.rank, lora.target_modules
    if lora.path:
        try:
            stored = json.loads((find_model(lora.path) / "adapter_config.json").read_text(encoding="utf-8"))
            rank, targets = int(stored["r"]), [str(name).split(".")[-1] for name in stored["target_modules"]]
        except (OSError, ValueError, KeyError, TypeError):
            pass
    return shape.count_adapter(rank, None if isinstance(targets, str) else targets)


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """One model of a learner."""

    name: str
    whole: int
    """Bytes where it lies in one process, without what it shares with another model."""
    rows: int
    """Bytes of the rows of all ranks together."""
    trained: int = 0
    """Numbers that its optimizer trains."""
    steps_back: bool = False
    """Whether a step keeps what its weights and moments were."""


def list_models(settings: ForecastSettings, shapes: Shapes) -> list[Model]:
    """The models of one learner's trainer, the policy first; every one of them is cut where there are ranks."""
    precision, shape, copies = find_precision(settings), shapes.policy, settings.copies
    adapted = copies.is_adapted
    base, trained = shape.num_parameters * precision.weight, count_trained(settings, shape)
    adapter = trained * precision.trained if adapted else 0
    # Copies of a policy with an adapter share the frozen weights in one process; every model's rows have their own.
    copied, frozen_rows = adapter if adapted else base, base + adapter
    trained_rows = base + adapter if adapted else trained * precision.trained
    models = [
        Model(name="policy", whole=base + adapter, rows=trained_rows, trained=trained, steps_back=copies.steps_back)
    ]
    if copies.has_reference:
        models.append(Model(name="reference", whole=copied, rows=frozen_rows))
    if copies.learns_rewards:
        models.append(
            Model(
                name="implicit reward model",
                whole=copied,
                rows=trained_rows,
                trained=trained,
                steps_back=copies.steps_rewards_back,
            )
        )
    if copies.critic != "none":
        head = shape.hidden_size + 1
        layers = 0
        if copies.critic == "separate":
            layers = _count_backbone(settings, shape)
        of_layers = layers * (precision.trained if adapted else precision.weight)
        rows = layers * precision.trained + (shape.num_backbone * precision.weight if adapted and layers else 0)
        models.append(
            Model(
                name="critic",
                whole=of_layers + head * precision.weight,
                rows=rows + head * max(precision.weight, 4),
                trained=layers + head,
                steps_back=copies.steps_back,
            )
        )
    if copies.teacher:
        size = (shapes.teacher or shape).num_parameters * precision.weight
        models.append(Model(name="teacher", whole=size, rows=size))
    return models


def _count_backbone(settings: ForecastSettings, shape: ModelShape) -> int:
    """Trained numbers of a copy of the policy without its output layer."""
    lora = settings.model.lora
    if lora is None:
        return shape.num_backbone - (shape.num_parameters - count_trained(settings, shape))
    output = shape.count_adapter(1, ["lm_head"])
    whole = count_trained(settings, shape)
    has_output = not isinstance(lora.target_modules, str) and "lm_head" in lora.target_modules
    return whole - (lora.rank * output if has_output else 0)
