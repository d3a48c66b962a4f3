"""Converts trajectories to plain JSON and back, without token data, which `trajectories` keeps in arrays with spans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

import numpy as np

from turnwise.core.keys import Span
from turnwise.core.messages import ImagePart, Part
from turnwise.core.types import (
    ByteArray,
    Completion,
    ConversationOpening,
    Ending,
    FinishReason,
    Invalid,
    Message,
    Reward,
    RewardPart,
    RewardTerm,
    Scored,
    Signal,
    StopReason,
    Task,
    TextPart,
    ToolCall,
    ToolCallError,
    ToolRecord,
    ToolSpec,
    Trajectory,
    TrajectoryId,
    Turn,
    TurnScores,
    to_experts,
    to_floats,
    to_ids,
)
from turnwise.core.verdicts import RATING, Form, Judgement, Mark, Question, Usage, Verdict


def task_to_json(task: Task) -> dict[str, Any]:
    """A task as plain data."""
    return {
        "id": task.id,
        "environment": task.environment,
        "prompt": [message_to_json(message) for message in task.prompt],
        "payload": dict(task.payload),
    }


def task_from_json(row: Mapping[str, Any]) -> Task:
    """The inverse of `task_to_json`."""
    return Task(
        id=row["id"],
        environment=row["environment"],
        prompt=tuple(message_from_json(message) for message in row["prompt"]),
        payload=row["payload"],
    )


def trajectory_to_json(trajectory: Trajectory) -> dict[str, Any]:
    """A trajectory as plain data, without token ids, log-probabilities and versions per token."""
    name = trajectory.id
    return {
        "id": {"draw": name.draw, "member": name.member, "attempt": name.attempt, "role": name.role},
        "task_id": trajectory.task_id,
        "compare": trajectory.compare,
        "learns": trajectory.learns,
        "stop": trajectory.stop.value,
        "error": trajectory.error,
        "reward": _reward_to_json(trajectory.reward),
        "endings": [
            {
                "turn": ending.turn,
                "stop": ending.stop.value,
                "reward": _reward_to_json(ending.reward),
                "kind": ending.kind,
            }
            for ending in trajectory.endings
        ],
        "conversations": [_opening_to_json(opening) for opening in trajectory.conversations],
        "judgements": [judgement_to_json(judgement) for judgement in trajectory.judgements],
        "terms": [asdict(term) for term in trajectory.terms],
        "turns": [_turn_to_json(turn) for turn in trajectory.turns],
    }


def trajectory_from_json(row: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Trajectory:
    """The inverse of `trajectory_to_json`; each turn takes its span of the flat arrays `[T]` (see `trajectories`).

    Raises KeyError, TypeError or ValueError when the row is not a trajectory.
    """
    return Trajectory(
        id=id_from_json(row),
        task_id=row["task_id"],
        turns=tuple(_turn_from_json(turn, arrays) for turn in row["turns"]),
        stop=StopReason(row["stop"]),
        reward=_reward_from_json(row["reward"]),
        error=row["error"],
        endings=tuple(
            Ending(
                turn=ending["turn"],
                stop=StopReason(ending["stop"]),
                reward=_reward_from_json(ending["reward"]),
                kind=ending["kind"],
            )
            for ending in row["endings"]
        ),
        conversations=tuple(_opening_from_json(opening) for opening in row["conversations"]),
        compare=row.get("compare", "task"),  # runs from before there were several roles
        learns=row.get("learns", True),
        judgements=tuple(judgement_from_json(judgement) for judgement in row.get("judgements", ())),
        terms=tuple(RewardTerm(**term) for term in row.get("terms", ())),
    )


def id_from_json(row: Mapping[str, Any]) -> TrajectoryId:
    """Return the id in a trajectory's row. Raises KeyError or TypeError when the row is not a trajectory."""
    return TrajectoryId(**row["id"])


def message_to_json(message: Message) -> dict[str, Any]:
    """A message as plain data, its pictures without their pixels (`part_to_json`)."""
    return {
        "role": message.role,
        "content": [part_to_json(part) for part in message.content],
        "reasoning": message.reasoning,
        "tool_calls": [_call_to_json(call) for call in message.tool_calls],
        "tool_errors": [
            {"kind": error.kind, "raw": error.raw, "message": error.message} for error in message.tool_errors
        ],
        "tool_call_id": message.tool_call_id,
        "name": message.name,
    }


def message_from_json(row: Mapping[str, Any]) -> Message:
    """The inverse of `message_to_json`."""
    return Message(
        role=row["role"],
        content=tuple(part_from_json(part) for part in row["content"]),
        reasoning=row["reasoning"],
        tool_calls=tuple(ToolCall(**call) for call in row["tool_calls"]),
        tool_errors=tuple(ToolCallError(**error) for error in row["tool_errors"]),
        tool_call_id=row["tool_call_id"],
        name=row["name"],
    )


def part_to_json(part: Part) -> dict[str, Any]:
    """A part of a message as plain data: `{"text"}`, or `{"image": digest, "width", "height", "label"}`."""
    if isinstance(part, ImagePart):
        return {"image": part.digest, "width": part.width, "height": part.height, "label": part.label}
    return {"text": part.text}


def part_from_json(row: Mapping[str, Any]) -> Part:
    """Return a part of a message's row. Raises KeyError or TypeError for anything else."""
    if "image" in row:
        return ImagePart(digest=row["image"], width=row["width"], height=row["height"], label=row.get("label", ""))
    return TextPart(**row)


def _span_to_json(span: Span) -> list[Any]:
    return [span.start, span.length, span.digest, span.offset, span.grid]


def span_from_json(row: Sequence[Any]) -> Span:
    """Return the span that a turn's row has as `[start, length, digest, offset, grid]`. Raises TypeError or ValueError
    for anything else."""
    start, length, digest, offset, grid = row
    return Span(start=start, length=length, digest=digest, offset=offset, grid=None if grid is None else tuple(grid))


def _turn_to_json(turn: Turn) -> dict[str, Any]:
    completion = turn.completion
    return {
        "parent": turn.parent,
        "finish_reason": completion.finish_reason.value,
        "version_first": completion.version_first,
        "version_last": completion.version_last,
        "guided": completion.full_logprobs is not None,
        "message": message_to_json(turn.message),
        "observations": [message_to_json(message) for message in turn.observations],
        "tool_records": [_record_to_json(record) for record in turn.tool_records],
        "scores": _scores_to_json(turn.scores),
        "signals": [{"name": signal.name, "value": signal.value} for signal in turn.signals],
        "state": turn.state,
        "conversation": turn.conversation,
        "engine_s": turn.engine_s,
        "environment_s": turn.environment_s,
        **({} if turn.is_received else {"is_received": False}),
        **({"images": [_span_to_json(span) for span in turn.images]} if turn.images else {}),
    }


def _turn_from_json(row: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Turn:
    context, completion = slice(*row["context"]), slice(*row["completion"])
    versions = arrays["versions"][completion]
    several = not ((versions == row["version_first"]).all() or (versions == -1).all())
    return Turn(
        parent=row["parent"],
        context_ids=to_ids(arrays["token_ids"][context]),
        completion=Completion(
            token_ids=to_ids(arrays["token_ids"][completion]),
            logprobs=to_floats(arrays["logprobs"][completion]),
            finish_reason=FinishReason(row["finish_reason"]),
            version_first=row["version_first"],
            version_last=row["version_last"],
            versions=to_ids(versions) if several else None,
            full_logprobs=to_floats(arrays["full_logprobs"][completion]) if row["guided"] else None,
            experts=_take_experts(row["experts"], arrays["experts"]) if "experts" in row else None,
        ),
        message=message_from_json(row["message"]),
        observations=tuple(message_from_json(message) for message in row["observations"]),
        images=tuple(span_from_json(span) for span in row.get("images", ())),
        tool_records=tuple(map(_record_from_json, row["tool_records"])),
        scores=TurnScores(**row["scores"]),
        signals=tuple(Signal(**signal) for signal in row["signals"]),
        state=row["state"],
        conversation=row["conversation"],
        is_received=row.get("is_received", True),
        engine_s=row["engine_s"],
        environment_s=row["environment_s"],
    )


def _take_experts(row: Mapping[str, Any], array: np.ndarray) -> ByteArray:
    at, shape = row["at"], row["shape"]
    return to_experts(array[at : at + int(np.prod(shape))].reshape(shape))


def _scores_to_json(scores: TurnScores) -> dict[str, float]:
    """Return the scores that were measured, and only those."""
    values = {field.name: getattr(scores, field.name) for field in fields(scores)}
    return {name: value for name, value in values.items() if value is not None}


def _opening_to_json(opening: ConversationOpening) -> dict[str, Any]:
    return {
        "name": opening.name,
        "caller": opening.caller,
        "inherits": opening.inherits,
        "messages": [message_to_json(message) for message in opening.messages],
        "tools": [
            {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
            for tool in opening.tools
        ],
    }


def _opening_from_json(row: Mapping[str, Any]) -> ConversationOpening:
    return ConversationOpening(
        name=row["name"],
        caller=row.get("caller"),
        inherits=row.get("inherits", False),
        messages=tuple(message_from_json(message) for message in row["messages"]),
        tools=tuple(ToolSpec(**tool) for tool in row["tools"]),
    )


def judgement_to_json(judgement: Judgement) -> dict[str, Any]:
    """A question to a judge and its answer as plain data."""
    question, verdict, usage = judgement.question, judgement.verdict, judgement.usage
    row: dict[str, Any] = {
        "judge": judgement.judge,
        "messages": [message_to_json(message) for message in question.messages],
        "rubric": question.rubric,
        "seed": question.seed,
        "usage": [usage.attempts, usage.prompt_tokens, usage.reply_tokens, usage.cost],
        "truth": judgement.truth,
    }
    if question.answers:
        row["answers"] = list(question.answers)
    if question.form != RATING:
        marks = [[mark.name, [list(word) for word in mark.words], mark.weight] for mark in question.form.marks]
        row["form"] = {"task": question.form.task, "marks": marks}
    if verdict is None:
        return {**row, "problem": judgement.problem}
    given = {"score": verdict.score, "text": verdict.text, "model": verdict.model, "seconds": verdict.seconds}
    return {**row, **given, "marks": [list(mark) for mark in verdict.marks]}


def judgement_from_json(row: Mapping[str, Any]) -> Judgement:
    """The inverse of `judgement_to_json`."""
    form = RATING
    if "form" in row:
        marks = tuple(
            Mark(name=name, words=tuple((word, value) for word, value in words), weight=weight)
            for name, words, weight in row["form"]["marks"]
        )
        form = Form(task=row["form"]["task"], marks=marks)
    question = Question(
        messages=tuple(message_from_json(message) for message in row["messages"]),
        answers=tuple(row.get("answers", ())),
        rubric=row["rubric"],
        form=form,
        seed=row["seed"],
    )
    attempts, prompt_tokens, reply_tokens, cost = row.get("usage", (1, 0, 0, 0.0))
    usage = Usage(attempts=attempts, prompt_tokens=prompt_tokens, reply_tokens=reply_tokens, cost=cost)
    verdict = None
    if "score" in row:
        verdict = Verdict(
            score=row["score"],
            marks=tuple((name, value) for name, value in row.get("marks", ())),
            text=row["text"],
            model=row["model"],
            seconds=row["seconds"],
            usage=usage,
        )
    return Judgement(
        judge=row["judge"],
        question=question,
        verdict=verdict,
        problem=row.get("problem", ""),
        usage=usage,
        truth=row.get("truth"),
    )


def _call_to_json(call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "name": call.name, "arguments": call.arguments}


def _record_to_json(record: ToolRecord) -> dict[str, Any]:
    return {
        "call": _call_to_json(record.call),
        "observation": record.observation,
        "error": record.error,
        "seconds": record.seconds,
        "clipped_chars": record.clipped_chars,
        **({} if record.exception is None else {"exception": record.exception}),
        **({"content": [part_to_json(part) for part in record.content]} if record.content else {}),
    }


def _record_from_json(row: Mapping[str, Any]) -> ToolRecord:
    content = tuple(map(part_from_json, row.get("content", ())))
    return ToolRecord(**{**row, "call": ToolCall(**row["call"]), "content": content})


def _reward_to_json(reward: Reward) -> dict[str, Any]:
    if isinstance(reward, Invalid):
        return {"invalid": {"reason": reward.reason, "retryable": reward.retryable}}
    return {
        "scored": {"total": reward.total, "parts": [{"name": part.name, "value": part.value} for part in reward.parts]}
    }


def _reward_from_json(row: Mapping[str, Any]) -> Reward:
    if "invalid" in row:
        return Invalid(**row["invalid"])
    return Scored(total=row["scored"]["total"], parts=tuple(RewardPart(**part) for part in row["scored"]["parts"]))
