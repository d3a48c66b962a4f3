"""Questions that need a plan as an environment family: tasks, environments and policies."""

from __future__ import annotations

from typing import Any

from turnwise.core.episodes import AskingEnvironment
from turnwise.core.protocols import ScriptedPolicy, Split
from turnwise.core.seeds import derive_seed, rng
from turnwise.core.types import Task
from turnwise.environments.arguments import check_index, choose_policy, read_arguments
from turnwise.environments.plan.arguments import PlanArguments
from turnwise.environments.plan.environment import PlanEnvironment, Rules, build_prompt
from turnwise.environments.plan.policies import PlanningPolicy, RandomPolicy
from turnwise.environments.plan.world import ENTITIES, draw_plan, format_plan, format_question


class Plan:
    """Two look-ups in the right order, planned before they are made.

    Implements `EnvironmentFamily`; tasks are pure functions of its arguments. Every task has a world of its own.
    """

    def __init__(self, **arguments: Any) -> None:
        """`arguments` are the fields of `PlanArguments`. Raises ConfigError naming the argument and the remedy."""
        self._chosen = chosen = read_arguments(PlanArguments, arguments)
        self._rules = Rules(plan=chosen.plan, success=chosen.success)

    def task(self, split: Split, index: int) -> Task:
        """The index-th task of a split; splits have no end and share no world.

        Raises IndexError for a negative index, ConfigError for another split.
        """
        check_index(split, index)
        path = (self._chosen.seed, "plan", split, index)
        random = rng(*path)
        plan, entity = draw_plan(random), random.choice(ENTITIES)
        question = format_question(plan, entity)
        payload = {"seed": derive_seed(*path, "world"), "question": question, "plan": list(plan), "entity": entity}
        return Task(environment="plan", prompt=build_prompt(question, None), payload=payload)

    def build_environment(self, task: Task) -> AskingEnvironment:
        """A fresh, single-use `PlanEnvironment`."""
        return PlanEnvironment(self._rules)

    def policy(self, name: str) -> ScriptedPolicy:
        """A scripted policy: "oracle", "random" or "naive" (the demonstrator). Raises ConfigError naming these."""
        return choose_policy(
            name,
            {
                "oracle": PlanningPolicy(1.0),
                "random": RandomPolicy(),
                "naive": PlanningPolicy(self._chosen.naive_order),
            },
        )

    def texts(self, count: int) -> list[str]:
        """`count` texts of training tasks as a policy meets them."""
        texts: list[str] = []
        for index in range(count):
            payload = self.task("train", index).payload
            plan, entity = tuple(payload["plan"]), payload["entity"]
            [prompt] = build_prompt(payload["question"], plan)
            texts += [prompt.text, f" {format_plan(plan)}", f" {plan[0]} {entity}", f" found {entity} call none"]
        return texts[:count]
