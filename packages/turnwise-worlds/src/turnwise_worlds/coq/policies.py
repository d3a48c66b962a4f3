"""Scripted policies that call tactics in Coq."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from random import Random

from turnwise.core.types import Message, Task, ToolCall
from turnwise_worlds.coq.arguments import CoqArguments
from turnwise_worlds.coq.theorem import CoqTheorem
from turnwise_worlds.coq.words import WORDS, to_terse, write_sentence
from turnwise_worlds.proofs.words import NUMBERS, Tactic
from turnwise_worlds.proving.environment import REFUSED
from turnwise_worlds.proving.prover import TacticRefused
from turnwise_worlds.proving.show import read_goal, shuffle_names

_NAME = re.compile(r"\b[a-z]\b")
_FORMS = {
    "=": ("induction", "simpl", "rewrite", "reflexivity"),
    ">": ("intro",),
    "|": ("left", "right"),
    "&": ("split",),
}
"""Tactics that fit a goal with a symbol, the one that binds least first."""
_ATOM = ("destruct", "destruct", "split", "reflexivity", "simpl")
"""Those that are drawn for any other goal."""
_CALLED = re.compile(r"(\S+) ;|^(\w+) : ", re.MULTILINE)
"""What a hypothesis is called in the terse and in the full style."""


class ScriptPolicy:
    """Calls the script's next tactic with probability `skill`, else, and off the script, one that fits the form of the
    goal, with any name. With `skill=1` it is the oracle. It uses names as they are shown; where nothing is shown it
    calls any tactic."""

    def __init__(self, chosen: CoqArguments, skill: float) -> None:
        """`skill=0` is the random policy: any tactic with any name that is shown."""
        self._chosen = chosen
        self._skill = skill

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        given = CoqTheorem.from_json(task.payload)
        call = None
        if rng.random() < self._skill and self._chosen.shown != "hidden":
            call = self._find_next(given, messages)
        draw = guess_tactic if self._skill and self._chosen.shown != "hidden" else draw_tactic
        name, arguments = call or self._write(draw(messages, rng), given, messages[-1])
        made = ToolCall(id=f"call_{len(messages)}", name=name, arguments=json.dumps(arguments))
        return Message(role="assistant", content=(), tool_calls=(made,))

    def _find_next(self, given: CoqTheorem, messages: Sequence[Message]) -> tuple[str, dict[str, str]] | None:
        """Return the next call of the script; None off its path or past its end."""
        shown = shuffle_names(given.names, self._chosen.seed) if self._chosen.shown == "shuffled" else {}
        script = [Tactic(tactic.word, shown.get(tactic.name, tactic.name)) for tactic in given.script]
        at = 0
        for before, message, answer in zip(messages, messages[1:], messages[2:], strict=False):
            if not message.tool_calls or answer.text.startswith(REFUSED):
                continue
            made = message.tool_calls[0]
            if at == len(script) or (made.name, json.loads(made.arguments)) != self._write(script[at], given, before):
                return None
            at += 1
        return self._write(script[at], given, messages[-1]) if at < len(script) else None

    def _write(self, tactic: Tactic, given: CoqTheorem, seen: Message) -> tuple[str, dict[str, str]]:
        """Return a call: of a tactic's own tool, or, in the full style, of `tactic` with its sentence."""
        if self._chosen.style == "terse":
            number = NUMBERS.get(tactic.name)
            called = None if number is None else re.search(rf"(\S*\D{number}) ;", seen.text)
            name = called[1] if called is not None else tactic.name
            return tactic.word, {"name": name} if WORDS[tactic.word].takes_name else {}
        try:
            return "tactic", {"text": write_sentence(tactic, read_goal(seen.text), given.names)}
        except TacticRefused:
            return "tactic", {"text": tactic.word}


def draw_tactic(messages: Sequence[Message], rng: Random) -> Tactic:
    """Draw a tactic, and a name from the last state where it takes one."""
    word = rng.choice(list(WORDS))
    names = [*_list_called(messages[-1].text), *_NAME.findall(messages[-1].text)]
    return Tactic(word, rng.choice(names or ["a"]) if WORDS[word].takes_name else "")


def guess_tactic(messages: Sequence[Message], rng: Random) -> Tactic:
    """Draw a tactic that fits the form of the goal: where a hypothesis ends in the goal, `apply` with one that does;
    else any with any hypothesis. What it leads to is not looked at."""
    given, _, after = messages[-1].text.partition("|- ")
    goal, hypotheses = to_terse(after.partition("\n")[0]), _list_called(given)
    fitting = [each for each in hypotheses if each.rstrip("0123456789") == goal]
    form = next((form for form in _FORMS if form in goal.split()), "")
    if not form and fitting:
        return Tactic("apply", rng.choice(fitting))
    word = rng.choice(_FORMS.get(form, _ATOM))
    if not WORDS[word].takes_name:
        return Tactic(word)
    names = hypotheses if word != "induction" else []
    return Tactic(word, rng.choice(names or _NAME.findall(after) or ["a"]))


def _list_called(text: str) -> list[str]:
    return [one or other for one, other in _CALLED.findall(text)]
