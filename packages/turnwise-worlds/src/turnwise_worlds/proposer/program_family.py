"""Proposers and solvers of programs as an environment family (Absolute Zero, arXiv 2505.03335): deduction only.

The proposer writes a program with its input, our interpreter runs it, and solvers predict the output.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from turnwise.core.errors import ConfigError
from turnwise.core.protocols import Environment, Opening, ScriptedPolicy, Split, StepResult
from turnwise.core.seeds import rng
from turnwise.core.types import Message, Reward, Scored, StopReason, Task, text_message
from turnwise.environments.generated import GeneratedFamily
from turnwise.environments.replies import answer_message
from turnwise.rewards.answers import extract_answer
from turnwise_worlds.proposer.arguments import ProgramProposerArguments
from turnwise_worlds.proposer.episode import Problem, ProposerEnvironment
from turnwise_worlds.proposer.pay import Flaw, Kind
from turnwise_worlds.proposer.programs import (
    BASE,
    MAX_OPERATIONS,
    OPERATIONS,
    Program,
    format_program,
    parse_program,
    run_program,
)

NAME = "program_proposer"
PROPOSE = "Propose\n"
RUN = "Run: {program}\n"
GROUPS = {"common": tuple(OPERATIONS)[:4], "middle": tuple(OPERATIONS)[4:8], "rare": tuple(OPERATIONS)[8:]}
"""Kinds of held-out programs, by their rarest operation."""
MAX_TRIES = 10_000


def judge(program: Program | None) -> Flaw | None:
    """Return the flaw of a program; None if it has none.

    `ill_formed`: it does not parse, or only evaluations may use it. `unsolvable`: an operation is not defined.
    `ambiguous`: two runs differ, which cannot happen in our interpreter. `trivial`: it has no operation, or no step
    changes the number.
    """
    if program is None or program.is_held_out:
        return "ill_formed"
    values = run_program(program)
    if values is None:
        return "unsolvable"
    if values != run_program(program):
        return "ambiguous"
    return "trivial" if {program.value} == {program.value, *values} else None


class Prediction:
    """Implements `Environment`: one reply, whose last word must be the output of a program."""

    async def reset(self, task: Task, seed: int) -> Opening:
        """Return the program as the opening."""
        self._output = str(task.payload["output"])
        return Opening(messages=task.prompt, tools=())

    async def step(self, message: Message) -> StepResult:
        """End the episode with the reply."""
        return StepResult(observations=(), done=True)

    async def score(self, replies: Sequence[Message], stop: StopReason) -> Reward:
        """Return 1 if the last word of the answer is the output, else 0."""
        words = (extract_answer(replies[-1].text) or "").split() if replies and not stop.is_truncated else []
        right = float(words[-1:] == [self._output])
        return Scored.of(right, {"success": right})

    async def close(self) -> None:
        """Do nothing: there is nothing to free."""


@dataclass(frozen=True, kw_only=True)
class ProgramSubject:
    """Implements `Subject`."""

    kinds: tuple[str, ...] = tuple(OPERATIONS)
    max_replies: int = 1

    def read(self, task: Task, proposal: str) -> Problem | Flaw:
        """Parse the program that a text denotes."""
        program = parse_program(proposal)
        flaw = judge(program)
        if flaw is not None:
            return flaw
        assert program is not None, "what is no program is ill-formed"
        return build_problem(program)

    def given(self, task: Task) -> Problem | None:
        """Return the program of a held-out task."""
        program = parse_program(task.payload.get("program", ""))
        return None if program is None else build_problem(program)

    def build_solver(self, problem: Problem) -> Environment:
        """Build an environment for one prediction."""
        return Prediction()


def build_problem(program: Program) -> Problem:
    """Return a program as a problem for solvers. Raises ConfigError for a program without output."""
    values = run_program(program)
    if values is None:
        raise ConfigError(f"program {format_program(program)!r} has no output")
    number, names = 0, list(OPERATIONS)
    for name in program.operations:
        number = number * (len(names) + 1) + names.index(name) + 1
    prompt = (text_message("user", RUN.format(program=format_program(program))),)
    return Problem(
        kind=Kind(name=program.rarest, number=number * BASE + program.value),
        task=Task(environment=NAME, prompt=prompt, payload={"output": values[-1]}),
    )


class ProgramPolicy:
    """Proposes operations drawn by `weights`, and answers with the number after every operation.

    With probability `slip` it answers with a random number instead.
    """

    def __init__(self, weights: Mapping[str, float], slip: float = 0.0) -> None:
        self._weights, self._slip = weights, slip

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        """Return a program, or the answer to one."""
        opening = messages[0].text
        if opening == PROPOSE:
            count = rng.choices(range(1, MAX_OPERATIONS + 1), (3, 2, 1))[0]
            operations = tuple(rng.choices(list(self._weights), list(self._weights.values()), k=count))
            return answer_message(format_program(Program(operations=operations, value=rng.randrange(BASE))))
        program = parse_program(opening.removeprefix("Run: "))
        values = run_program(program) if program is not None else None
        if program is None or values is None or rng.random() < self._slip:
            return answer_message(str(rng.randrange(BASE)))
        return answer_message(
            " ".join(f"{name} {value}" for name, value in zip(program.operations, values, strict=True))
        )


class ProgramProposer(GeneratedFamily[ProgramProposerArguments]):
    """A proposer writes programs; solvers predict their output.

    Training tasks differ only in their seeds; a held-out one brings a program that may not be proposed, whose rarest
    operation is common, middling or rare with equal probability.
    """

    name = NAME
    section = ProgramProposerArguments

    def generate(self, split: Split, index: int) -> tuple[tuple[Message, ...], dict[str, Any]]:
        """Generate a task; splits are endless."""
        payload: dict[str, Any] = {"index": index, "seed": self._chosen.seed}
        if split == "train":
            return (text_message("user", PROPOSE),), payload
        kind = list(GROUPS)[index % len(GROUPS)]
        text = format_program(draw_held_out(rng(self._chosen.seed, "programs", index), GROUPS[kind]))
        payload |= {"kind": kind, "program": text}
        return (text_message("user", RUN.format(program=text)),), payload

    def build_environment(self, task: Task) -> ProposerEnvironment:
        """Build a fresh, single-use `ProposerEnvironment`."""
        return ProposerEnvironment(self._chosen, ProgramSubject(), task)

    def policies(self) -> Mapping[str, ScriptedPolicy]:
        """Return the policies "oracle" (uniform, right), "random" (uniform, any number) and "naive" (right, drawing
        from the prior), and "prior" and "uniform", proposers that do not learn."""
        uniform = dict.fromkeys(OPERATIONS, 1.0)
        prior = ProgramPolicy({name: rank**-self._chosen.skew for rank, name in enumerate(OPERATIONS, start=1)})
        return {
            "oracle": ProgramPolicy(uniform),
            "random": ProgramPolicy(uniform, slip=1.0),
            "naive": prior,
            "prior": prior,
            "uniform": ProgramPolicy(uniform),
        }

    def sample_texts(self, index: int) -> Iterator[str]:
        """Yield the opening once, then proposals, programs and answers."""
        if not index:
            yield PROPOSE
        oracle, task = self.policy("oracle"), self.task("train", index)
        random = rng(self._chosen.seed, "programs", "text", index)
        program = oracle.reply(task, task.prompt, random).text.removeprefix("<answer> ").removesuffix(" </answer>")
        opening = text_message("user", RUN.format(program=program))
        yield f" {program}"
        yield opening.text
        yield oracle.reply(task, [opening], random).text


def draw_held_out(random: Random, rarest: Sequence[str]) -> Program:
    """Draw a held-out program without other flaws, whose rarest operation is one of `rarest`."""
    order = list(OPERATIONS)
    for _ in range(MAX_TRIES):
        last = random.choice(rarest)
        others = random.choices(order[: order.index(last) + 1], k=random.randint(1, MAX_OPERATIONS - 1))
        operations = random.sample([last, *others], len(others) + 1)
        program = Program(operations=tuple(operations), value=random.randrange(BASE))
        values = run_program(program)
        if program.is_held_out and values is not None and {program.value} != {program.value, *values}:
            return program
    raise ConfigError(f"no held-out program of {', '.join(rarest)} was found")
