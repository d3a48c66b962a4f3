"""Held-out tasks of a run, by set: those that are reported, those that choose checkpoints, and further ones by name."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from turnwise.building.families import build_family
from turnwise.config.environment import EnvironmentSection
from turnwise.config.evaluate import SELECTION
from turnwise.config.run import RunConfig
from turnwise.core.errors import ConfigError, DataError, boundary
from turnwise.core.protocols import EnvironmentFamily
from turnwise.core.types import Draw
from turnwise.environments.draws import LeftOut, check_left_out, name_task, try_task
from turnwise.rollout.workers import RolloutWorker
from turnwise.runs.build import System


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOut:
    """The tasks of an evaluation."""

    draws: list[Draw]
    """Different tasks, at least one; their index is that of the split."""
    notes: list[str]
    """Which tasks of the split are not among them, in one line each."""


def draw_heldout(
    family: EnvironmentFamily,
    count: int,
    *,
    first: int = 0,
    reserved: Collection[str] = (),
    max_left_out: float = 0.0,
) -> HeldOut:
    """The `count` held-out tasks from index `first`, fewer if the data set ends, without copies and without those that
    cannot be made. `reserved` are ids of tasks that another set has: they are left out too.

    A copy is no further evidence. Raises DataError if there is no task, or naming one if more than a share of
    `max_left_out` cannot be made or is reserved.
    """
    draws: dict[str, Draw] = {}
    left_out: list[LeftOut] = []
    copies: list[tuple[int, int]] = []
    taken: list[str] = []
    for index in range(first, first + count):
        try:
            task = try_task(family, "heldout", index)
        except IndexError:
            break
        if isinstance(task, LeftOut):
            left_out.append(task)
            check_left_out(len(left_out), count, max_left_out, task.why)
        elif task.id in reserved:
            taken.append(name_task(family, "heldout", index))
        elif task.id in draws:
            copies.append((index, draws[task.id].index))
        else:
            draws[task.id] = Draw(index=index, task=task)
    if len(taken) > max_left_out * max(count, 1):
        raise DataError(
            f"{len(taken)} of the {count} tasks from held-out task {first} are copies of tasks of evaluate.tasks, such "
            f"as {taken[0]}, more than environment.max_left_out={max_left_out:g} allows; remove copies from the "
            "held-out split, or change evaluate.tasks"
        )
    if not draws:
        cause = f" ({left_out[0].why})" if left_out else ""
        if first:
            raise DataError(f"the held-out split ends before task {first}{cause}; lower evaluate.tasks, or add tasks")
        raise DataError(
            f"the held-out split is empty{cause}; set environment.args.heldout_path to a file with at least one "
            "question"
        )
    notes = [f"left out: {each.why}" for each in left_out]
    if copies:
        copy, original = (name_task(family, "heldout", index) for index in copies[0])
        notes.append(
            f"{len(draws):,} different tasks are evaluated; left out as copies of earlier ones: {len(copies):,} "
            f"({copy} equals {original})"
        )
    if taken:
        notes.append(f"left out as copies of tasks of evaluate.tasks: {len(taken):,} (such as {taken[0]})")
    return HeldOut(draws=[*draws.values()], notes=notes)


def heldout_draws(family: EnvironmentFamily, count: int) -> list[Draw]:
    """`draw_heldout` without its notes, where every task must be made."""
    return draw_heldout(family, count).draws


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOutSet:
    """A set of held-out tasks, and what plays them."""

    name: str
    """"" for the tasks that are reported."""
    system: System
    """Samples them, in the environment of the set."""
    num_tasks: int
    first: int = 0
    """Index of the first task in the held-out split."""

    def draw(self) -> HeldOut:
        """The tasks. Raises DataError as `draw_heldout`."""
        config, family = self.system.config, self.system.family
        most = config.environment.max_left_out
        reserved: Collection[str] = ()
        if self.first:
            reported = draw_heldout(family, self.first, max_left_out=most)
            reserved = {draw.task.id for draw in reported.draws}
        return draw_heldout(family, self.num_tasks, first=self.first, reserved=reserved, max_left_out=most)

    def worker(self, changes: Mapping[str, Any] | None = None) -> RolloutWorker:
        """What plays them, in an environment with these `changes` of its arguments."""
        return self.system.worker("evaluate", changes)


def list_sets(system: System) -> list[HeldOutSet]:
    """The sets that every evaluation of a run plays: those that are reported, those that choose, those of
    `evaluate.sets`. Raises ConfigError as `build_set`."""
    evaluate = system.config.evaluate
    chosen = [select_by(system)] if evaluate.selection_tasks else []
    return [
        HeldOutSet(name="", system=system, num_tasks=evaluate.tasks),
        *chosen,
        *(find_set(system, name) for name in evaluate.sets),
    ]


def select_by(system: System) -> HeldOutSet:
    """The set on which checkpoints are chosen."""
    evaluate = system.config.evaluate
    return HeldOutSet(name=SELECTION, system=system, num_tasks=evaluate.selection_tasks, first=evaluate.tasks)


def find_set(
    system: System, name: str, *, changes: Mapping[str, Any] | None = None, tasks: int | None = None
) -> HeldOutSet:
    """The set of this name: one of the recipe, or the held-out tasks of the environment family of this name with
    `changes` as its arguments. `tasks` None is the number that the recipe says.

    Raises ConfigError where there is neither.
    """
    evaluate = system.config.evaluate
    if name == SELECTION:
        if not evaluate.selection_tasks:
            raise ConfigError(f"this run has no set {SELECTION!r}: its evaluate.selection_tasks is 0")
        chosen = select_by(system)
        return chosen if tasks is None else replace(chosen, num_tasks=min(tasks, chosen.num_tasks))
    section = evaluate.sets.get(name)
    config = place_in(system.config, name)
    if section is None:
        environment = config.environment.model_copy(update={"args": dict(changes or {})})
        config = config.model_copy(update={"environment": environment})
    with boundary(ConfigError, f"evaluate.sets.{name}" if section else f"--on {name}"):
        family = build_family(config)
    # Rollout processes know the environment of the recipe alone.
    return HeldOutSet(
        name=name,
        system=replace(system, config=config, family=family, rollouts=None),
        num_tasks=tasks or (section.tasks if section else 0) or evaluate.tasks,
    )


def place_in(config: RunConfig, name: str) -> RunConfig:
    """The recipe with the environment of a set: of one in `evaluate.sets`, else the family of this name."""
    section, environment = config.evaluate.sets.get(name), config.environment
    if section is not None and not section.environment:
        changed = _with_arguments(environment, section.args)
    else:
        update = {"name": section.environment if section else name, "args": dict(section.args) if section else {}}
        changed = environment.model_copy(update={**update, "mixture": {}})
    return config.model_copy(update={"environment": changed})


def _with_arguments(environment: EnvironmentSection, arguments: Mapping[str, Any]) -> EnvironmentSection:
    """The environment with other arguments; of a mixture, `arguments` has a table by label."""
    if not environment.mixture:
        return environment.model_copy(update={"args": {**environment.args, **arguments}})
    unknown = [label for label in arguments if label not in environment.mixture]
    if unknown:
        raise ConfigError(
            f"evaluate.sets has arguments for {unknown[0]!r}, which is no family of environment.mixture; name one of "
            + ", ".join(environment.mixture)
        )
    mixture = {
        label: member.model_copy(update={"args": {**member.args, **dict(arguments.get(label, {}))}})
        for label, member in environment.mixture.items()
    }
    return environment.model_copy(update={"mixture": mixture})
