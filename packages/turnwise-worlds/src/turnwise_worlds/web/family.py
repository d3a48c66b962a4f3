"""The web as an environment family: tasks, environments and policies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from turnwise.core.faults import Fault
from turnwise.core.protocols import ScriptedPolicy, Split
from turnwise.core.seeds import derive_seed, rng
from turnwise.core.types import Message, Task, Trajectory, text_message
from turnwise.environments.generated import GeneratedFamily
from turnwise_worlds.web.arguments import WebArguments
from turnwise_worlds.web.environment import REFUSED, WebEnvironment, build_prompt
from turnwise_worlds.web.faults import NAMES as FAULTS
from turnwise_worlds.web.faults import find_web_fault
from turnwise_worlds.web.goals.tasks import make_visit
from turnwise_worlds.web.named import NamedEnvironment
from turnwise_worlds.web.numbered import NumberedEnvironment
from turnwise_worlds.web.policies import RandomVisitor, ScriptedVisitor
from turnwise_worlds.web.site.generate import LURE
from turnwise_worlds.web.site.words import ATTRIBUTES, CATEGORIES, COLOURS, NAMES, PRICES

HOME_WORDS = " search"


class Web(GeneratedFamily[WebArguments]):
    """Things to buy, facts to find, forms to fill."""

    name = "web"
    section = WebArguments
    fault_names = FAULTS

    def generate(self, split: Split, index: int) -> tuple[tuple[Message, ...], dict[str, Any]]:
        """Generate a task; splits are endless and share no seed. Controls change what pages show, not the tasks."""
        path = (self._chosen.seed, "web", split, index)
        kinds = self._chosen.kinds
        kind = rng(*path, "kind").choices(list(kinds), list(kinds.values()))[0]
        payload = {"kind": kind, "seed": derive_seed(*path)}
        visit = make_visit(payload, self._chosen.site)
        return (text_message("user", build_prompt(visit, self._chosen)),), payload

    def build_environment(self, task: Task) -> WebEnvironment:
        """Build a fresh, single-use environment whose actions are of the chosen style."""
        build = NamedEnvironment if self._chosen.actions == "webshop" else NumberedEnvironment
        return build(self._chosen, task)

    def find_fault(self, task: Task, trajectory: Trajectory) -> Fault | None:
        """See `FaultFinder`."""
        return find_web_fault(self._chosen, task, trajectory)

    def policies(self) -> Mapping[str, ScriptedPolicy]:
        """Return the policies "oracle", "random" and "naive"."""
        chosen = self._chosen
        naive = ScriptedVisitor(chosen, chosen.naive_skill)
        return {"oracle": ScriptedVisitor(chosen, 1.0), "random": RandomVisitor(chosen), "naive": naive}

    def sample_texts(self, index: int) -> Iterator[str]:
        """Yield the question, the words of sites, and one call of every action of the style."""
        words = (*CATEGORIES, *ATTRIBUTES, *COLOURS, *NAMES, *map(str, PRICES))
        word, other = words[index % len(words)], words[7 * index % len(words)]
        yield self.task("train", index).prompt[0].text + HOME_WORDS
        yield f" {word} {other} {word} on buy nothing {LURE[self._chosen.site]}"
        if self._chosen.actions == "webshop":
            yield f" search query = {word}"
            yield f" click name = {other}"
            yield " back"
            yield f"error: {REFUSED}"
        else:
            yield f" click number = {index % 20}"
            yield f" type number = {index % 20} text = {word} enter = true"
            yield f" stop answer = {word}"
