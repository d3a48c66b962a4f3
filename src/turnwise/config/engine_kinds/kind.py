"""One row of the table of engines, and the options that a kind may have."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import ValidationError

from turnwise.config.section import Section
from turnwise.core.errors import ConfigError, boundary
from turnwise.core.protocols import Engine


class EngineOptions(Section):
    """Options of any kind of engine."""

    def check(self, *, device: str, num_threads: int) -> None:
        """Raise ConfigError for combinations that cannot work on `device`, "cpu" or "cuda"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """What an engine holds besides the model, as the plan of memory counts it; predicted from options that nobody has
    checked yet."""

    has_pages: bool = True
    """Whether its cache is pages of what conversations share, and not a slot for each."""
    num_workers: int = 1
    """Processes that sample from one copy of the weights, each with packed weights of its own."""
    num_guests: int = 0
    """Programs with weights and a cache of their own, which the run starts on its host."""
    guest_cache_bytes: int = 0
    """Cache of each guest."""
    is_staged: bool = False
    """Whether a version of the weights lies as files in shared memory until it is read."""


def predict_one_process(options: Mapping[str, Any]) -> Footprint:
    """The footprint of an engine in the run's own process, with a paged cache."""
    return Footprint()


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineKind:
    """One row of the table of engines: all that the library knows about a kind.

    `engine.kind` may name one of another package, as "package.module:NAME" or by a name that the package offers."""

    name: str
    options: type[EngineOptions] | None = None
    """What `engine.options` may hold; None leaves the options, unchecked, to `build`."""
    build: Callable[..., Engine] | None = None
    """Makes the engine (`engines.settings.BuildEngine`); None for a built-in kind, whose builder `engines/` has under
    its name."""
    records_experts: bool | None = None
    """Whether completions say which experts of a mixture computed them; None is judged by the completions."""
    follows_grammars: bool = True
    """Whether replies can be held to a grammar."""
    reads_images: bool = False
    """Whether a prompt may show pictures: its engine has `generate_seeing` (`core.protocols.SeeingEngine`)."""
    samples_adapters: bool = True
    """Whether it samples from a model with a LoRA adapter."""
    max_adapter_rank: int | None = None
    """The largest rank of an adapter; None is any."""
    has_weights_outside: bool = False
    """Whether weights, cache and steps are those of other programs."""
    has_checked_steps: bool = False
    """Whether its steps are the paged engine's, which are tried on a model before it is used (`engines/check.py`)."""
    one_policy: str = ""
    """Why there can be one engine of this kind in a run, and so one policy with weights; empty where there can be
    several."""
    one_learner: str = ""
    """Why several learners cannot have an engine of this kind each; empty where they can."""
    predict: Callable[[Mapping[str, Any]], Footprint] = predict_one_process
    """From `engine.options` to what the engine holds (`footprint` asks for it)."""

    def footprint(self, options: Mapping[str, Any]) -> Footprint:
        """What the engine holds. Raises ConfigError where `predict` fails or returns something else."""
        with boundary(ConfigError, f"engine.kind={self.name!r}: its predict"):
            held: object = self.predict(options)
        if not isinstance(held, Footprint):
            raise ConfigError(
                f"engine.kind={self.name!r}: its predict returned a {type(held).__name__}; return a Footprint"
            )
        return held


Options = TypeVar("Options", bound=Section)


def read_options(
    kind: str, model: type[Options], options: Mapping[str, Any], *, where: str = "engine", named_by: str = "kind"
) -> Options:
    """The checked options of an engine, or of a row that the option `named_by` of another section, `where`, names.
    Raises ConfigError naming the key, its value and what is expected, an unknown key with the nearest one that
    exists."""
    try:
        return model.model_validate(dict(options))
    except ValidationError as error:
        problems = error.errors()
        # A misspelled key is the reason why another one is missing.
        problem = next((each for each in problems if each["type"] == "extra_forbidden"), problems[0])
        key = ".".join(str(part) for part in problem["loc"])
        if problem["type"] == "extra_forbidden":
            near = difflib.get_close_matches(key, list(model.model_fields), n=1, cutoff=0.0)
            hint = f"did you mean {near[0]!r}?" if near else "it has no options"
            raise ConfigError(
                f"{where}.options.{key} is not an option of {where}.{named_by}={kind!r}; {hint}"
            ) from None
        expected = problem["msg"].replace("Input should be", "it must be", 1)
        if problem["type"] == "missing":
            raise ConfigError(f"{where}.options.{key} is missing; {where}.{named_by}={kind!r} needs it") from None
        if not key:
            raise ConfigError(f"{where}.options: {expected.removeprefix('Value error, ')}") from None
        raise ConfigError(f"{where}.options.{key} is {problem['input']!r}; {expected}") from None


def read_count(value: object, default: int) -> int:
    """An unchecked option that should be a count; None is the default, what is no count is 1."""
    value = default if value is None else value
    return value if isinstance(value, int) and value > 0 else 1
