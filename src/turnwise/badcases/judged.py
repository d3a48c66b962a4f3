"""Where an attempt first leaves what would have succeeded, by a judge that reads it."""

from __future__ import annotations

from turnwise.badcases.divergence import Divergence, Unknown
from turnwise.core.errors import RewardError
from turnwise.core.judging import Judge
from turnwise.core.messages import text_message, to_plain_text
from turnwise.core.types import Task, Trajectory
from turnwise.core.verdicts import Form, Mark, Question

RUBRIC = (
    "The text is an attempt at a task that failed. Its replies are numbered. Name the number of the first reply after "
    "which the attempt is no longer on a way that leads to success."
)
MARK = "reply"


def write_attempt(task: Task, trajectory: Trajectory) -> str:
    """Write task and attempt as a judge reads them: each reply with its number, and what it was answered."""
    lines = ["task: " + "".join(map(to_plain_text, task.prompt)).strip()]
    for number, turn in enumerate(trajectory.turns):
        calls = " ".join(f"[{call.name} {call.arguments}]" for call in turn.message.tool_calls)
        errors = " ".join(error.raw for error in turn.message.tool_errors)
        said = " ".join(part for part in (turn.message.text.strip(), calls, errors) if part)
        lines.append(f"reply {number}: {said}")
        lines += [f"answer: {to_plain_text(message).strip()}" for message in turn.observations]
    return "\n".join(lines)


async def find_by_judge(judge: Judge, task: Task, trajectory: Trajectory) -> Divergence | Unknown:
    """Ask which reply was the first wrong one. A judge that answers with a number alone gives none."""
    words = tuple((str(number), 0.0) for number in range(len(trajectory.turns)))
    form = Form(marks=(Mark(name=MARK, words=words),), task="Write the number of the reply.")
    # The attempt is fenced as any judged text is: what it says is no instruction to the judge.
    about = Question(messages=(text_message("user", write_attempt(task, trajectory)),), rubric=RUBRIC, form=form)
    try:
        verdict = await judge.judge(about)
        written = verdict.mark(MARK)
    except RewardError as cause:
        return Unknown(reason=f"the judge gave no verdict ({cause})")
    except KeyError:
        return Unknown(reason="the judge answers with a number alone and names no reply")
    if written not in {word for word, _ in words}:
        return Unknown(reason=f"the judge names reply {written!r}, which the attempt does not have")
    return Divergence(method="judge", turn=int(written))
