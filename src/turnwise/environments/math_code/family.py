"""Mathematics with an interpreter as an environment family: where its tasks, environments and policies come from."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any, Literal, get_args

from turnwise.core.errors import ConfigError
from turnwise.core.protocols import Environment, ScriptedPolicy, Split
from turnwise.core.seeds import rng
from turnwise.core.types import Message, Task, text_message
from turnwise.environments.math_code.datasets import MathRow, load_problems
from turnwise.environments.math_code.environment import MathEnvironment, Rules
from turnwise.environments.math_code.interpreter import SharedSandbox, load_sandbox
from turnwise.environments.math_code.policies import NaivePolicy, OraclePolicy, RandomPolicy, answer_message, problem_of
from turnwise.environments.math_code.problems import KINDS, build_problem
from turnwise.environments.math_code.reasoning import DATASETS, check_installed, draw_entry
from turnwise.rewards.math_answer import RewardRule, parse_integer
from turnwise.rewards.math_verifier import MathVerifier
from turnwise_sandbox.types import Limits

Mode = Literal["generated", "reasoning_gym", "files"]
Prompt = Literal["short", "boxed", "retool"]

PROMPTS: dict[Prompt, str] = {
    "short": "{question}\n",
    "boxed": (
        "{question}\n\nWork it out step by step. Where computing helps, run Python and print what you need to know. "
        "End with the final answer inside \\boxed{{}}.\n"
    ),
    "retool": (
        "Work out the problem below step by step. You may write Python whenever computing helps: put one complete "
        "program between <code> "
        "and </code>, and what it prints, or its error, comes back between <interpreter> and </interpreter>. Every "
        "program starts from "
        "nothing, so print whatever you want to see. Check what came back, and correct the program when it failed. "
        "End with <answer> \\boxed{{the final answer}} </answer>.\n\nProblem: {question}\n"
    ),
}
"""The first message. "retool" explains the tags, "boxed" is for chat models, which are told of the tool by their
template."""


class MathCode:
    r"""Problems that an interpreter helps with. Implements `EnvironmentFamily`; tasks are pure functions of its
    arguments.

    Args:
        mode: "generated": arithmetic that a small model can copy into code but not do in its head. "reasoning_gym":
        problems of
            that package. "files": the user's own rows.
        seed: Of problems and of the order of training rows.
        kinds: Kind of problem ("generated") or data set ("reasoning_gym") -> weight; None gives all the same weight.
        train_path: JSONL or Parquet training problems of mode "files" (layouts: see `datasets`).
        heldout_path: JSONL or Parquet held-out problems of mode "files".
        prompt: "retool" explains the tags, "boxed" asks a chat model for a `\boxed{}` answer, "short" is the question
        alone.
        code: Whether there is an interpreter. False is a control that must fail.
        max_calls: Programs an episode may run.
        wall_s: Seconds of real time a program may take.
        memory_mib: Memory a program may take, in MiB.
        output_bytes: Output kept of a program, standard output and standard error each.
        traceback_lines: Last lines of a traceback the model sees; 1 is short enough for tiny models.
        reward: "sign": 1 or -1. "verl": a wrong answer costs less after more turns (see `compute_retool_reward`).
        bug_rate: Probability that the naive policy's first program has its kind's slip.
        fix_rate: Probability that the naive policy corrects a program that failed instead of guessing.
        sandbox: "local", or the import path "package.module:callable" of what builds a `Sandbox`.
        sandbox_args: Keyword arguments of that call.
        compare_timeout_s: Seconds comparing one answer may take, in its own process.
        tool_timeout_s: Seconds a call may take, waiting for a free place in the sandbox included.
        reward_timeout_s: Seconds scoring may take, waiting included.
        max_observation_chars: Longest output shown to the model.

    Raises:
        ConfigError: an argument is out of range or a package is missing; the message names it, its value and the
        remedy. DataError: a file of mode "files" is missing or malformed. RewardError: math-verify fails on answers
        whose outcome is known.
    """

    def __init__(
        self,
        *,
        mode: Mode = "generated",
        seed: int = 0,
        kinds: Mapping[str, float] | None = None,
        train_path: str = "",
        heldout_path: str = "",
        prompt: Prompt = "retool",
        code: bool = True,
        max_calls: int = 4,
        wall_s: float = 5.0,
        memory_mib: int = 1024,
        output_bytes: int = 65_536,
        traceback_lines: int = 5,
        reward: RewardRule = "sign",
        bug_rate: float = 0.75,
        fix_rate: float = 0.15,
        sandbox: str = "local",
        sandbox_args: Mapping[str, Any] | None = None,
        compare_timeout_s: float = 10.0,
        tool_timeout_s: float = 30.0,
        reward_timeout_s: float = 60.0,
        max_observation_chars: int = 4000,
    ) -> None:
        """See the class."""
        _check_choices(
            mode=(mode, Mode), prompt=(prompt, Prompt), reward=(reward, RewardRule), code=(code, Literal[True, False])
        )
        for name, whole, least in (("seed", seed, 0), ("max_calls", max_calls, 0), ("memory_mib", memory_mib, 16)):
            _check_number(name, whole, int, least, 2**62)
        for name, whole in (("output_bytes", output_bytes), ("traceback_lines", traceback_lines)):
            _check_number(name, whole, int, 1, 2**40)
        for name, share in (("bug_rate", bug_rate), ("fix_rate", fix_rate)):
            _check_number(name, share, float, 0.0, 1.0)
        timeouts = {"wall_s": wall_s, "compare_timeout_s": compare_timeout_s, "tool_timeout_s": tool_timeout_s}
        for name, seconds in {**timeouts, "reward_timeout_s": reward_timeout_s}.items():
            _check_number(name, seconds, float, 1e-3, 86_400.0)
        if wall_s >= tool_timeout_s:
            raise ConfigError(
                f"wall_s={wall_s} leaves no time to wait for a place in tool_timeout_s={tool_timeout_s}; raise the "
                "second"
            )
        self._mode, self._seed, self._prompt = mode, seed, PROMPTS[prompt]
        self._bug_rate, self._fix_rate = bug_rate, fix_rate
        self._rules = Rules(
            code=code,
            max_calls=max_calls,
            limits=Limits(wall_s=wall_s, memory_bytes=memory_mib << 20, output_bytes=output_bytes),
            traceback_lines=traceback_lines,
            reward=reward,
            tool_timeout_s=tool_timeout_s,
            reward_timeout_s=reward_timeout_s,
            max_observation_chars=max_observation_chars,
        )
        self._sandbox = SharedSandbox(load_sandbox(sandbox, sandbox_args or {}))
        self._verifier = MathVerifier(timeout_s=compare_timeout_s)
        self._epoch_order = lru_cache(maxsize=2)(self._shuffle_epoch)
        self._kinds: dict[str, float] = {}
        if mode == "files":
            self._rows = _load_files(train_path=train_path, heldout_path=heldout_path)
            self._verifier.check()
        else:
            self._kinds = _checked_kinds(kinds, tuple(KINDS) if mode == "generated" else DATASETS)
        if mode == "reasoning_gym":
            check_installed()

    # ------------------------------------------------------------------------------------------- tasks

    def task(self, split: Split, index: int) -> Task:
        """The index-th task of a split.

        Generated splits have no end and share no question. Of files, "train" starts over in a new order after each pass
        and "heldout" ends. Raises IndexError for a negative index or one past the end, ConfigError for another split.
        """
        if split not in get_args(Split):
            raise ConfigError(f"split {split!r} is unknown; use one of {', '.join(map(repr, get_args(Split)))}")
        if index < 0:
            raise IndexError(f"task {index} of split {split!r}: an index starts at 0")
        payload = self._row_payload(split, index) if self._mode == "files" else self._drawn_payload(split, index)
        question = payload["question"]
        return Task(
            environment="math_code",
            prompt=(text_message("user", self._prompt.format(question=question)),),
            payload={**payload, "split": split},
        )

    def _drawn_payload(self, split: Split, index: int) -> dict[str, Any]:
        path = (self._seed, "task", split, index)
        kind = rng(*path, "kind").choices(list(self._kinds), list(self._kinds.values()))[0]
        random = rng(*path, "problem")
        if self._mode == "reasoning_gym":
            entry = draw_entry(kind, split, random)
            return {"kind": kind, "question": entry["question"], "answers": [entry["answer"]], "entry": entry}
        problem = build_problem(kind, split, random)
        return {
            "kind": kind,
            "question": problem.question,
            "answers": [str(problem.answer)],
            "parts": list(problem.parts),
        }

    def _row_payload(self, split: Split, index: int) -> dict[str, Any]:
        rows = self._rows[split]
        if split == "heldout" and index >= len(rows):
            raise IndexError(f"task {index} of split 'heldout': the file has {len(rows)} problems")
        row = rows[index] if split == "heldout" else rows[self._epoch_order(index // len(rows))[index % len(rows)]]
        return {"kind": row.kind, "question": row.question, "answers": list(row.answers)}

    def _shuffle_epoch(self, epoch: int) -> Sequence[int]:
        return rng(self._seed, "epoch", epoch).sample(range(len(self._rows["train"])), len(self._rows["train"]))

    # ------------------------------------------------------------------------------------------- the family's other
    # products

    def build_environment(self) -> Environment:
        """A fresh, single-use `MathEnvironment`; all of a family share one sandbox, opened when the first program
        runs."""
        return MathEnvironment(runner=self._sandbox, judge=self._judge, rules=self._rules)

    def _judge(self, task: Task, answer: str) -> bool:
        """Whole numbers for generated problems, the package's scorer for reasoning-gym, math-verify for files."""
        payload = task.payload
        if "entry" in payload:
            return self._verifier.score(answer, payload["kind"], payload["entry"])
        if "parts" in payload:
            return parse_integer(answer) == int(payload["answers"][0])
        return self._verifier.verify(answer, payload["answers"])

    def gold_answer(self, task: Task) -> str:
        """The first of the task's right answers."""
        return str(task.payload["answers"][0])

    def answer_reply(self, answer: str) -> Message:
        """The reply that gives this answer and nothing else; "" leaves its place empty."""
        return answer_message(answer)

    def policy(self, name: str) -> ScriptedPolicy:
        """A scripted policy: "oracle", "random" or "naive" (the demonstrator). Raises ConfigError naming these."""
        policies: dict[str, ScriptedPolicy] = {
            "oracle": OraclePolicy(),
            "random": RandomPolicy(),
            "naive": NaivePolicy(self._bug_rate, self._fix_rate),
        }
        if name not in policies:
            raise ConfigError(f"policy {name!r} is unknown; use one of {', '.join(policies)}")
        return policies[name]

    def texts(self, count: int) -> list[str]:
        """`count` texts of training tasks as a policy meets them: prompts, programs, outputs, errors and answers.
        Nothing is run."""
        found: list[str] = []
        index = 0
        while len(found) < count:
            task = self.task("train", index)
            problem = problem_of(task)
            answer = task.payload["answers"][0]
            found += [task.prompt[0].text, f"\\boxed{{ {answer} }}"]
            if problem is not None:
                programs = dict.fromkeys((problem.attempt, problem.slip or problem.solution, problem.solution))
                found += [*(f" {program}" for program in programs), f" {answer}", f" {KINDS[problem.kind].error}"]
            index += 1
        return Random(self._seed).sample(found, len(found))[:count]


def _load_files(**paths: str) -> dict[Split, tuple[MathRow, ...]]:
    for name, path in paths.items():
        if not path:
            raise ConfigError(f"{name}={path!r} but mode='files' needs it; give the path of a .jsonl or .parquet file")
    splits: tuple[Split, ...] = get_args(Split)
    return {split: load_problems(Path(paths[f"{split}_path"])) for split in splits}


def _check_choices(**arguments: tuple[Any, Any]) -> None:
    """Each argument's value and the `Literal` it must be one of."""
    for name, (value, choices) in arguments.items():
        if value not in get_args(choices) or type(value) is not type(get_args(choices)[0]):
            raise ConfigError(f"{name}={value!r} is unknown; use one of {', '.join(map(repr, get_args(choices)))}")


def _check_number(name: str, value: Any, kind: type, minimum: float, maximum: float) -> None:
    """A whole number for `int`, any finite number for `float`, within the bounds."""
    allowed = int if kind is int else int | float
    if isinstance(value, bool) or not isinstance(value, allowed) or not minimum <= value <= maximum:
        raise ConfigError(
            f"{name}={value!r} is out of range; give a {'whole ' if kind is int else ''}number from {minimum:g} to "
            f"{maximum:g}"
        )


def _checked_kinds(kinds: Any, known: Sequence[str]) -> dict[str, float]:
    """Weights without the zero ones; all known kinds with the same weight for None."""
    if kinds is None:
        return dict.fromkeys(known, 1.0)
    if not isinstance(kinds, Mapping):
        raise ConfigError(f"kinds={kinds!r} is not a table; give weights such as {{{known[0]!r}: 1.0}}")
    for kind, weight in kinds.items():
        if kind not in known:
            raise ConfigError(f"kinds.{kind}={weight!r}: no such kind of problem; use {', '.join(known)}")
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not math.isfinite(weight) or weight < 0:
            raise ConfigError(f"kinds.{kind}={weight!r} is no weight; give a number of at least 0")
    positive = {kind: float(weight) for kind, weight in kinds.items() if weight > 0}
    if not positive:
        raise ConfigError(f"kinds={dict(kinds)!r} has no positive weight; give at least one kind a weight above 0")
    return positive
