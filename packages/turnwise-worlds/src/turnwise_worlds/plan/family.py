"""Questions that need a plan as an environment family: tasks, environments and policies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from turnwise.core.protocols import ScriptedPolicy, Split
from turnwise.core.seeds import derive_seed, rng
from turnwise.core.types import Message, Task
from turnwise.environments.generated import GeneratedFamily
from turnwise_worlds.plan.arguments import PlanArguments
from turnwise_worlds.plan.environment import PlanEnvironment, build_prompt
from turnwise_worlds.plan.policies import PlanningPolicy, RandomPolicy
from turnwise_worlds.plan.world import ENTITIES, draw_plan, format_plan, format_question


class Plan(GeneratedFamily[PlanArguments]):
    """Questions that need two look-ups in the right order, planned in advance. Every task has its own world."""

    name = "plan"
    section = PlanArguments

    def generate(self, split: Split, index: int) -> tuple[tuple[Message, ...], dict[str, Any]]:
        """Generate a task; splits are endless and share no world."""
        path = (self._chosen.seed, "plan", split, index)
        random = rng(*path)
        plan, entity = draw_plan(random), random.choice(ENTITIES)
        question = format_question(plan, entity)
        payload = {"seed": derive_seed(*path, "world"), "question": question, "plan": list(plan), "entity": entity}
        return build_prompt(question, None), payload

    def build_environment(self, task: Task) -> PlanEnvironment:
        """Build a fresh, single-use `PlanEnvironment`."""
        return PlanEnvironment(self._chosen)

    def policies(self) -> Mapping[str, ScriptedPolicy]:
        """Return the policies "oracle", "random" and "naive"."""
        naive = PlanningPolicy(self._chosen.naive_order)
        return {"oracle": PlanningPolicy(1.0), "random": RandomPolicy(), "naive": naive}

    def sample_texts(self, index: int) -> Iterator[str]:
        """Yield the actor's prompt, the right plan, its first call and its result."""
        payload = self.task("train", index).payload
        plan, entity = tuple(payload["plan"]), payload["entity"]
        yield build_prompt(payload["question"], plan)[0].text
        yield f" {format_plan(plan)}"
        yield f" {plan[0]} {entity}"
        yield f" found {entity} call none"
