"""Houses as an environment family: tasks, environments and policies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from random import Random
from typing import Any

from turnwise.core.protocols import ScriptedPolicy, Split
from turnwise.core.seeds import derive_seed, rng
from turnwise.core.types import Message, Task, text_message
from turnwise.environments.generated import GeneratedFamily
from turnwise_worlds.house.arguments import HouseArguments
from turnwise_worlds.house.environment import HouseEnvironment
from turnwise_worlds.house.policies import KnowingPolicy
from turnwise_worlds.house.session import Session


class House(GeneratedFamily[HouseArguments]):
    """Things to find, change, and bring where they are wanted: ALFWorld's six types of tasks in generated houses."""

    name = "house"
    section = HouseArguments

    def __init__(self, **arguments: Any) -> None:
        """See `GeneratedFamily`."""
        super().__init__(**arguments)
        # A control changes what an episode says and does, not which tasks there are.
        self._uncontrolled = self._chosen.model_copy(update={"observations": "own", "names": "own"})

    def generate(self, split: Split, index: int) -> tuple[tuple[Message, ...], dict[str, Any]]:
        """Generate a task; splits are endless and share no seed."""
        path = (self._chosen.seed, "house", split, index)
        kinds = self._chosen.kinds
        payload = {
            "kind": rng(*path, "kind").choices(list(kinds), list(kinds.values()))[0],
            "seed": derive_seed(*path),
        }
        session = Session.open(payload, self._uncontrolled)
        return (text_message("user", session.style.open(session.house)),), payload

    def build_environment(self, task: Task) -> HouseEnvironment:
        """Build a fresh, single-use `HouseEnvironment`."""
        return HouseEnvironment(self._chosen, task)

    def policies(self) -> Mapping[str, ScriptedPolicy]:
        """Return the policies "oracle", "random" and "naive"."""
        skills = {"oracle": 1.0, "random": 0.0, "naive": self._chosen.naive_skill}
        return {name: KnowingPolicy(self._chosen, skill) for name, skill in skills.items()}

    def sample_texts(self, index: int) -> Iterator[str]:
        """Yield the opening, and the commands and outcomes of an episode that is half right."""
        task = self.task("train", index)
        yield task.prompt[0].text
        session, policy = Session.open(task.payload, self._uncontrolled), KnowingPolicy(self._uncontrolled, 0.5)
        random = Random(index)
        said: list[Message] = []
        while not session.is_over:
            said.append(policy.reply(task, said, random))
            session = session.command(said[-1].text.removeprefix("<answer> ").removesuffix(" </answer>"))
            yield f" {said[-1].text.removeprefix('<answer> ').removesuffix(' </answer>')}"
            yield session.shown
        yield from (session.style.nothing, " .")
