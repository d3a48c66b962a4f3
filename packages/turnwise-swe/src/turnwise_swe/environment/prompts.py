"""The opening of an episode."""

from __future__ import annotations

from turnwise.core.types import Message, text_message
from turnwise_swe.environment.arguments import Prompt, Protocol
from turnwise_swe.environment.cases import Case
from turnwise_swe.environment.mini import FENCES, MARKER

TASK = (
    "You work on the source of the Python package {name} {version}, in the current folder. Repair what this "
    "report describes, in the package's own code. Hidden copies of the tests decide: changes of tests or settings do "
    "not count."
)
MINI = (
    "You work in a shell. Each of your replies explains in a few words what you do next, and then has exactly one "
    "command in one block:\n\n```{fence}\nls -la\n```\n\n"
    "Each command runs in a new shell in the project's folder; variables and the folder are not kept, files are. When "
    "the repair is done and tested, submit with this command alone: `echo {marker}`."
)
ORACLE = "The test {test} fails. The bug is here:\n\n{places}"


def write_prompt(case: Case, prompt: Prompt, protocol: Protocol) -> tuple[Message, ...]:
    """Write the first messages."""
    instance = case.instance
    name, version = instance.repository.split("==")
    task = TASK.format(name=name, version=version)
    texts = [task, instance.issue] if prompt == "full" else [instance.issue]
    if prompt == "oracle" and case.places:
        places = "\n\n".join(place.show() for place in case.places)
        texts = [ORACLE.format(test=instance.fail_to_pass[0], places=places)]
    user = text_message("user", "\n\n".join(texts).strip() or task)
    if protocol == "tools":
        return (user,)
    return text_message("system", MINI.format(fence=FENCES[0], marker=MARKER)), user
