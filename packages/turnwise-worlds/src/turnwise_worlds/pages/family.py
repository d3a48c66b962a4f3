"""Pages as an environment family: tasks, environments and policies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from turnwise.core.protocols import ScriptedPolicy, Split
from turnwise.core.seeds import derive_seed, rng
from turnwise.core.types import Message, Task
from turnwise.environments.generated import GeneratedFamily
from turnwise_worlds.pages.arguments import PagesArguments
from turnwise_worlds.pages.environment import INVALID_REPLY, PagesEnvironment, build_prompt
from turnwise_worlds.pages.page import DIGITS, SIDE
from turnwise_worlds.pages.policies import RandomPolicy, ReadingPolicy
from turnwise_worlds.pages.view import View


class Pages(GeneratedFamily[PagesArguments]):
    """Pages whose red cells are seen in the overview, and read after zooming in."""

    name = "pages"
    section = PagesArguments

    def __init__(self, **arguments: Any) -> None:
        """See `GeneratedFamily`."""
        super().__init__(**arguments)
        # A control changes what an episode shows, not which tasks there are.
        self._uncontrolled = self._chosen.model_copy(update={"overview": "page"})

    def generate(self, split: Split, index: int) -> tuple[tuple[Message, ...], dict[str, Any]]:
        """Generate a task; splits are endless and share no seed."""
        path = (self._chosen.seed, "pages", split, index)
        kinds = self._chosen.kinds
        kind = rng(*path, "kind").choices(list(kinds), list(kinds.values()))[0]
        payload = {"kind": kind, "seed": derive_seed(*path)}
        return build_prompt(View.open(payload, self._uncontrolled), self._chosen.prompt), payload

    def build_environment(self, task: Task) -> PagesEnvironment:
        """Build a fresh, single-use `PagesEnvironment`."""
        return PagesEnvironment(self._chosen, task)

    def policies(self) -> Mapping[str, ScriptedPolicy]:
        """Return the policies "oracle", "random" and "naive"."""
        chosen = self._chosen
        naive = ReadingPolicy(chosen, chosen.naive_skill)
        return {"oracle": ReadingPolicy(chosen, 1.0), "random": RandomPolicy(), "naive": naive}

    def sample_texts(self, index: int) -> Iterator[str]:
        """Yield the question, a zoom, an answer and an error."""
        yield self.task("train", index).prompt[0].text
        yield f" zoom row = {index % SIDE + 1} column = {index // SIDE % SIDE + 1}"
        yield f" {index % DIGITS}"
        yield f" {INVALID_REPLY}"
