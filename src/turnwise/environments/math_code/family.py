"""Mathematics with an interpreter as an environment family: where its tasks, environments and policies come from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from random import Random
from typing import Any

from turnwise.core.protocols import Environment, GradedCase, ScriptedPolicy, Split
from turnwise.core.seeds import rng
from turnwise.core.types import Message, Part, Task
from turnwise.environments.file_splits import FromFiles, load_splits
from turnwise.environments.generated import GeneratedFamily
from turnwise.environments.math_code.arguments import MathArguments, Prompt
from turnwise.environments.math_code.datasets import QUESTIONS, MathRow, to_math_row
from turnwise.environments.math_code.environment import MathEnvironment
from turnwise.environments.math_code.policies import NaivePolicy, OraclePolicy, RandomPolicy, answer_message, plan_of
from turnwise.environments.math_code.problems import build_problem
from turnwise.environments.math_code.reasoning import check_installed, draw_entry
from turnwise.environments.math_code.stories import draw_story
from turnwise.environments.published_rows import fill_template, take_pictures
from turnwise.environments.shared_sandbox import SharedSandbox, load_sandbox
from turnwise.environments.texts import mix_texts
from turnwise.pictures.rows import RowPictures
from turnwise.rewards.hand_cases import grade_math_answers, grade_whole_numbers
from turnwise.rewards.math_answer import parse_integer
from turnwise.rewards.math_verifier import MathVerifier

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
"""The first message. "retool" explains the tags; "boxed" is for chat models, whose template describes the tool."""


class MathCode(FromFiles, GeneratedFamily[MathArguments]):
    """Problems that are easier with an interpreter."""

    name = "math_code"
    section = MathArguments

    def __init__(self, **arguments: Any) -> None:
        """See `GeneratedFamily`. Also raises ConfigError if a package is missing, DataError if a file of mode "files"
        is missing or malformed, RewardError if math-verify fails on answers with known outcomes."""
        super().__init__(**arguments)
        chosen = self._chosen
        self._kinds = chosen.weights
        self._pictures = RowPictures()
        self._sandbox = SharedSandbox(load_sandbox(chosen.sandbox, chosen.sandbox_args))
        self._verifier = MathVerifier(timeout_s=chosen.compare_timeout_s)
        if chosen.mode == "files":
            paths: dict[Split, str] = {"train": chosen.train_path, "heldout": chosen.heldout_path}
            self._files = load_splits(
                paths,
                to_math_row,
                chosen.seed,
                max_bad_rows=chosen.max_bad_rows,
                asks=lambda row: row.asks,
                prepare=partial(take_pictures, names=QUESTIONS, pictures=self._pictures),
            )
            self._verifier.check()
        if chosen.mode == "reasoning_gym":
            check_installed()

    # ------------------------------------------------------------------------------------------- tasks

    def generate(self, split: Split, index: int) -> tuple[tuple[Message, ...], dict[str, Any]]:
        """Generate a task; splits are endless and share no question. From files, "train" starts over in a new order
        after each pass and "heldout" ends. Raises IndexError past the end."""
        before: tuple[Message, ...] = ()
        shown: tuple[Part, ...] = ()
        if self._files is None:
            payload = self._drawn_payload(split, index)
        else:
            row: MathRow = self._files.row(split, index)
            before, shown = row.before, row.shown
            payload = {"kind": row.kind, "question": row.question, "answers": list(row.answers)}
        asked = fill_template(PROMPTS[self._chosen.prompt], payload["question"], shown)
        return tuple(map(self._pictures.fill, (*before, asked))), {**payload, "split": split}

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
        """Build a story's payload; without a calculator, expressions become programs that print them."""
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
        """Build a fresh, single-use `MathEnvironment`; all environments of a family share one sandbox, opened for the
        first program."""
        return MathEnvironment(runner=self._sandbox, judge=partial(self._judge, task), chosen=self._chosen)

    def _judge(self, task: Task, answer: str) -> bool:
        """Judge an answer: whole numbers for generated problems, the package's scorer for reasoning-gym, math-verify
        for files."""
        payload = task.payload
        if "entry" in payload:
            return self._verifier.score(answer, payload["kind"], payload["entry"])
        if "parts" in payload or "story" in payload:
            return parse_integer(answer) == int(payload["answers"][0])
        return self._verifier.verify(answer, payload["answers"])

    def gold_answer(self, task: Task) -> str:
        """Return the first of the task's right answers."""
        return str(task.payload["answers"][0])

    def answer_reply(self, task: Task, answer: str) -> Message:
        """Return the reply to the task that states only this answer; "" leaves its place empty."""
        return answer_message(answer)

    def grade_hand_cases(self) -> list[GradedCase]:
        """See `TriedGrader`: mathematical answers, for generated problems those that are whole numbers; none for
        reasoning-gym, whose own scorers judge."""
        if self._chosen.mode == "files":
            return grade_math_answers(self._verifier.verify)
        return grade_whole_numbers() if self._chosen.mode != "reasoning_gym" else []

    def policies(self) -> Mapping[str, ScriptedPolicy]:
        """Return the policies "oracle", "random" and "naive"."""
        naive = NaivePolicy(self._chosen.bug_rate, self._chosen.fix_rate)
        return {"oracle": OraclePolicy(), "random": RandomPolicy(), "naive": naive}

    def texts(self, count: int) -> list[str]:
        """Return `count` of the training tasks' `sample_texts`, mixed. Runs nothing."""
        return mix_texts(self.sample_texts, count, self._chosen.seed)

    def sample_texts(self, index: int) -> Iterator[str]:
        """Yield prompts, programs, outputs, errors and answers."""
        task = self.task("train", index)
        plan = plan_of(task)
        answer = task.payload["answers"][0]
        yield from (message.text for message in task.prompt)
        yield f"\\boxed{{ {answer} }}"
        if plan is not None:
            programs = dict.fromkeys((plan.attempt, plan.slip or plan.solution, plan.solution))
            yield from (f" {program}" for program in programs)
            yield f" {answer}"
            if plan.error is not None:
                yield f" {plan.error}"
