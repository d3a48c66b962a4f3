"""Rewards for short answers: normalised exact match, F1, BLEU, and Search-R1's format variant. Pure functions of
replies.

Only the model's own text is judged. Search-R1 parses prompt and response together, so that the example in its own
prompt counts as an answer; no function here sees a prompt.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from turnwise.core.types import Message, StopReason, text_message
from turnwise.rewards.bleu import compute_length_aware_bleu
from turnwise.rewards.normal_form import Normalize, normalize_answer
from turnwise.rewards.thoughts import drop_thoughts

_ANSWER = re.compile(r"<answer>((?:(?!<answer>).)*?)</answer>", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerCase:
    """Everything a reward may look at."""

    replies: Sequence[Message]
    """The model's replies, in order."""
    golds: Sequence[str]
    """Accepted answers."""
    information: Sequence[str] = ()
    """Texts that the tools returned, in order."""
    stop: StopReason = StopReason.DONE
    normalize: Normalize = "numbers"
    """The rule by which the task compares answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerReward:
    """A reward with the cases that test it at start: see `selfcheck.check_reward`."""

    name: str
    compute: Callable[[AnswerCase], float]
    """Between 0 and 1."""
    must_pass: Sequence[AnswerCase] = field(default=())
    """Cases that must score 1."""
    must_fail: Sequence[AnswerCase] = field(default=())
    """Cases that must score at most 0.5."""


def exact_match(prediction: str, golds: Sequence[str], normalize: Normalize = "numbers") -> float:
    """1.0 when the prediction equals a gold answer in normal form, else 0.0."""
    return float(normalize_answer(prediction, normalize) in {normalize_answer(gold, normalize) for gold in golds})


def f1(prediction: str, golds: Sequence[str], normalize: Normalize = "numbers") -> float:
    """The best F1 over gold answers, on the words of the normal forms (counted with repetition).

    Two blank answers agree (1.0), one blank answer gives 0.0, as in SQuAD 2.0.
    """
    words = normalize_answer(prediction, normalize).split()
    return max((_f1(words, normalize_answer(gold, normalize).split()) for gold in golds), default=0.0)


def _f1(prediction: list[str], gold: list[str]) -> float:
    if not prediction or not gold:
        return float(prediction == gold)
    shared = (Counter(prediction) & Counter(gold)).total()
    return 2 * shared / (len(prediction) + len(gold))


def extract_answer(text: str) -> str | None:
    """Return the content of the last `<answer>...</answer>` in a reply, stripped; None if there is none outside its
    thoughts."""
    answers = _ANSWER.findall(drop_thoughts(text))
    return answers[-1].strip() if answers else None


def final_answer(case: AnswerCase) -> str | None:
    """Return the answer of an episode: the text in the last reply's tags, or all of a last reply without tags that
    ended the episode.

    None if the episode ended otherwise (a limit) or the last reply calls a tool.
    """
    if not case.replies:
        return None
    last = case.replies[-1]
    tagged = extract_answer(last.text)
    said = drop_thoughts(last.text)
    if tagged is not None or "<answer>" in said:
        return tagged
    finished = case.stop is StopReason.DONE and not last.tool_calls and not last.tool_errors
    return said.strip() if finished else None


def is_well_formed(replies: Sequence[Message]) -> bool:
    """Whether every reply reasons first and then does one thing: all but the last make one tool call, the last only
    answers.

    This is Search-R1's sequence think, search, information, ..., think, answer, read from structured replies.
    """
    if not replies:
        return False
    *earlier, last = replies
    if any(not (reply.reasoning or "").strip() or reply.tool_errors for reply in replies):
        return False
    if any(len(reply.tool_calls) != 1 or reply.text.strip() for reply in earlier):
        return False
    text = last.text.strip()
    return (
        not last.tool_calls
        and text.count("<answer>") == 1
        and text.startswith("<answer>")
        and text.endswith("</answer>")
    )


def format_score(case: AnswerCase, *, structure: float = 0.2, final: float = 0.1, retrieval: float = 0.1) -> float:
    """Search-R1's reward with format parts (its v0.3 variant), on structured replies.

        right answer, well formed                                          1
        right answer, not well formed                                      1 - structure
        wrong answer, well formed, a gold answer among the information     structure + retrieval
        wrong answer, well formed                                          structure
        wrong answer, not well formed                                      final
        no answer                                                          0

    A gold answer is "among the information" when a tool's text contains its normal form. Deviation: the original's
    default for `retrieval` is 0.
    """
    answer = final_answer(case)
    if answer is None:
        return 0.0
    well_formed = is_well_formed(case.replies)
    if exact_match(answer, case.golds, case.normalize):
        return 1.0 if well_formed else 1.0 - structure
    if not well_formed:
        return final
    golds = [f" {normalize_answer(gold, case.normalize)} " for gold in case.golds]
    seen = [f" {normalize_answer(text, case.normalize)} " for text in case.information]
    return structure + retrieval * any(gold in text for text in seen for gold in golds)


def _exact_match_reward(case: AnswerCase) -> float:
    answer = final_answer(case)
    return 0.0 if answer is None else exact_match(answer, case.golds, case.normalize)


def _f1_reward(case: AnswerCase) -> float:
    answer = final_answer(case)
    return 0.0 if answer is None else f1(answer, case.golds, case.normalize)


def _bleu_reward(case: AnswerCase) -> float:
    answer = final_answer(case)
    return 0.0 if answer is None else compute_length_aware_bleu(answer, case.golds, normalize=case.normalize)


def _case(text: str, *golds: str, reasoning: str | None = "so", stop: StopReason = StopReason.DONE) -> AnswerCase:
    return AnswerCase(replies=[text_message("assistant", text, reasoning=reasoning)], golds=golds, stop=stop)


_RIGHT = (
    _case("<answer> Port Vessa </answer>", "Port Vessa"),
    _case("<answer>the port vessa.</answer>", "Orin Vale", "Port Vessa"),
)
_WRONG = (
    _case("<answer></answer>", "A"),
    _case("<think> is it <answer> Port Vessa </answer>", "Port Vessa"),
    _case("<answer> Orin Vale </answer>", "Port Vessa"),
    _case("<answer>  </answer>", "Port Vessa"),
    _case("Port Vessa and Port Vessa again", "Port Vessa", stop=StopReason.MAX_TURN_TOKENS),
    AnswerCase(replies=(), golds=("Beijing",)),
)

REWARDS: dict[str, AnswerReward] = {
    "exact_match": AnswerReward(name="exact_match", compute=_exact_match_reward, must_pass=_RIGHT, must_fail=_WRONG),
    "f1": AnswerReward(name="f1", compute=_f1_reward, must_pass=_RIGHT, must_fail=_WRONG),
    "bleu": AnswerReward(name="bleu", compute=_bleu_reward, must_pass=_RIGHT, must_fail=_WRONG),
    "format": AnswerReward(name="format", compute=format_score, must_pass=_RIGHT, must_fail=_WRONG),
}
"""Built-in rewards by name."""
