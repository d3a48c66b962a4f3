"""Mathematics with an interpreter as an environment family: where its tasks, environments and policies come from."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import Any

from turnwise.core.protocols import Environment, ScriptedPolicy, Split
from turnwise.core.seeds import rng
from turnwise.core.types import Message, Task, text_message
from turnwise.environments.arguments import check_index, choose_policy, read_arguments
from turnwise.environments.file_splits import FromFiles, load_splits
from turnwise.environments.math_code.arguments import MathArguments, Prompt
from turnwise.environments.math_code.datasets import MathRow, to_math_row
from turnwise.environments.math_code.environment import MathEnvironment, Rules
from turnwise.environments.math_code.policies import NaivePolicy, OraclePolicy, RandomPolicy, answer_message, plan_of
from turnwise.environments.math_code.problems import build_problem
from turnwise.environments.math_code.reasoning import check_installed, draw_entry
from turnwise.environments.math_code.stories import draw_story
from turnwise.environments.shared_sandbox import SharedSandbox, load_sandbox
from turnwise.rewards.math_answer import parse_integer
from turnwise.rewards.math_verifier import MathVerifier
from turnwise_sandbox.types import Limits

PROMPTS: dict[Prompt, str] = {
    "short": "{question}\n",
    "boxed": (
        "{question}\n\nWork it out step by step. Where computing helps, run Python and print what you need to know. "
        "End with the final answer inside \\boxed{{}}.\n"
    ),
    "retool": (
        "Work out the problem below step by step. You may write Python whenever computing helps: put one complete "
        "program between <code> and </code>, and what it prints, or its error, comes back between <interpreter> and "
        "</interpreter>. Every program starts from nothing, so print whatever you want to see. Check what came back, "
        "and correct the program when it failed. End with <answer> \\boxed{{the final answer}} </answer>.\n\nProblem: "
        "{question}\n"
    ),
}
"""The first message. "retool" explains the tags, "boxed" is for chat models, which are told of the tool by their
template."""


class MathCode(FromFiles):
    """Problems that an interpreter helps with.

    Implements `EnvironmentFamily`; tasks are pure functions of its arguments.
    """

    def __init__(self, **arguments: Any) -> None:
        """`arguments` are the fields of `MathArguments`.

        Raises:
            ConfigError: an argument is out of range or a package is missing; the message names it, its value and the
                remedy.
            DataError: a file of mode "files" is missing or malformed.
            RewardError: math-verify fails on answers whose outcome is known.
        """
        self._chosen = chosen = read_arguments(MathArguments, arguments)
        self._kinds = chosen.weights
        self._rules = Rules(
            code=chosen.code,
            calculator=chosen.calculator,
            max_calls=chosen.max_calls,
            limits=Limits(wall_s=chosen.wall_s, memory_bytes=chosen.memory_mib << 20, output_bytes=chosen.output_bytes),
            traceback_lines=chosen.traceback_lines,
            reward=chosen.reward,
            tool_timeout_s=chosen.tool_timeout_s,
            reward_timeout_s=chosen.reward_timeout_s,
            max_observation_chars=chosen.max_observation_chars,
        )
        self._sandbox = SharedSandbox(load_sandbox(chosen.sandbox, chosen.sandbox_args))
        self._verifier = MathVerifier(timeout_s=chosen.compare_timeout_s)
        if chosen.mode == "files":
            paths: dict[Split, str] = {"train": chosen.train_path, "heldout": chosen.heldout_path}
            self._files = load_splits(
                paths, to_math_row, chosen.seed, max_bad_rows=chosen.max_bad_rows, asks=lambda row: row.asks
            )
            self._verifier.check()
        if chosen.mode == "reasoning_gym":
            check_installed()

    # ------------------------------------------------------------------------------------------- tasks

    def task(self, split: Split, index: int) -> Task:
        """The index-th task of a split.

        Generated splits have no end and share no question. Of files, "train" starts over in a new order after each pass
        and "heldout" ends. Raises IndexError for a negative index or one past the end, ConfigError for another split.
        """
        check_index(split, index)
        before: tuple[Message, ...] = ()
        if self._files is None:
            payload = self._drawn_payload(split, index)
        else:
            row: MathRow = self._files.row(split, index)
            before = row.before
            payload = {"kind": row.kind, "question": row.question, "answers": list(row.answers)}
        prompt = PROMPTS[self._chosen.prompt].format(question=payload["question"])
        return Task(
            environment="math_code",
            prompt=(*before, text_message("user", prompt)),
            payload={**payload, "split": split},
        )

    def _drawn_payload(self, split: Split, index: int) -> dict[str, Any]:
        path = (self._chosen.seed, "task", split, index)
        kind = rng(*path, "kind").choices(list(self._kinds), list(self._kinds.values()))[0]
        random = rng(*path, "problem")
        if self._chosen.mode == "reasoning_gym":
            entry = draw_entry(kind, split, random)
            return {"kind": kind, "question": entry["question"], "answers": [entry["answer"]], "entry": entry}
        if self._chosen.mode == "stories":
            return self._tell_story(kind, split, random)
        problem = build_problem(kind, split, random)
        return {
            "kind": kind,
            "question": problem.question,
            "answers": [str(problem.answer)],
            "parts": list(problem.parts),
        }

    def _tell_story(self, kind: str, split: Split, random: Random) -> dict[str, Any]:
        """A story's payload; without a calculator, expressions become programs that print them."""
        story = draw_story(kind, split, random)
        tool, solution, slip = story.tool, story.solution, story.slip
        if tool == "calculator" and not self._chosen.calculator:
            tool, solution, slip = "python", f"print({solution})", f"print({slip})"
        return {
            "kind": kind,
            "question": story.question,
            "answers": [str(story.answer)],
            "story": {"tool": tool, "solution": solution, "slip": slip},
        }

    # ------------------------------------------------------------------------------------------- episodes

    def build_environment(self, task: Task) -> Environment:
        """A fresh, single-use `MathEnvironment`; all of a family share one sandbox, opened for the first program."""
        return MathEnvironment(runner=self._sandbox, judge=partial(self._judge, task), rules=self._rules)

    def _judge(self, task: Task, answer: str) -> bool:
        """Whole numbers for generated problems, the package's scorer for reasoning-gym, math-verify for files."""
        payload = task.payload
        if "entry" in payload:
            return self._verifier.score(answer, payload["kind"], payload["entry"])
        if "parts" in payload or "story" in payload:
            return parse_integer(answer) == int(payload["answers"][0])
        return self._verifier.verify(answer, payload["answers"])

    def gold_answer(self, task: Task) -> str:
        """The first of the task's right answers."""
        return str(task.payload["answers"][0])

    def answer_reply(self, task: Task, answer: str) -> Message:
        """The reply to the task that gives this answer and nothing else; "" leaves its place empty."""
        return answer_message(answer)

    def policy(self, name: str) -> ScriptedPolicy:
        """A scripted policy: "oracle", "random" or "naive" (the demonstrator). Raises ConfigError naming these."""
        return choose_policy(
            name,
            {
                "oracle": OraclePolicy(),
                "random": RandomPolicy(),
                "naive": NaivePolicy(self._chosen.bug_rate, self._chosen.fix_rate),
            },
        )

    def texts(self, count: int) -> list[str]:
        """`count` texts of training tasks as a policy meets them: prompts, programs, outputs, errors and answers.

        Nothing is run.
        """
        texts: list[str] = []
        index = 0
        while len(texts) < count:
            task = self.task("train", index)
            plan = plan_of(task)
            answer = task.payload["answers"][0]
            texts += [*(message.text for message in task.prompt), f"\\boxed{{ {answer} }}"]
            if plan is not None:
                programs = dict.fromkeys((plan.attempt, plan.slip or plan.solution, plan.solution))
                texts += [*(f" {program}" for program in programs), f" {answer}"]
                texts += [f" {plan.error}"] if plan.error is not None else []
            index += 1
        return Random(self._chosen.seed).sample(texts, len(texts))[:count]
