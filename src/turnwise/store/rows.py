"""Trajectories as plain JSON data and back, token data left out: `trajectories` keeps those in arrays and adds the
spans."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from turnwise.core.types import (
    Completion,
    FinishReason,
    Invalid,
    Message,
    Reward,
    RewardPart,
    Scored,
    Signal,
    StopReason,
    Task,
    TextPart,
    ToolCall,
    ToolCallError,
    ToolRecord,
    Trajectory,
    Turn,
    to_floats,
    to_ids,
)


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
    """A trajectory as plain data, without token ids and logprobs."""
    return {
        "task_id": trajectory.task_id,
        "member": trajectory.member,
        "attempt": trajectory.attempt,
        "stop": trajectory.stop.value,
        "error": trajectory.error,
        "reward": _reward_to_json(trajectory.reward),
        "turns": [_turn_to_json(turn) for turn in trajectory.turns],
    }


def trajectory_from_json(row: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Trajectory:
    """The inverse of `trajectory_to_json`, with the spans of each turn taken from the flat arrays `[T]` (see
    `trajectories`).

    Raises KeyError, TypeError or ValueError when the row is not one.
    """
    return Trajectory(
        task_id=row["task_id"],
        group_id=row["group_id"],
        member=row["member"],
        turns=tuple(_turn_from_json(turn, arrays) for turn in row["turns"]),
        stop=StopReason(row["stop"]),
        reward=_reward_from_json(row["reward"]),
        error=row["error"],
        attempt=row["attempt"],
    )


def message_to_json(message: Message) -> dict[str, Any]:
    """A message as plain data."""
    return {
        "role": message.role,
        "content": [{"text": part.text} for part in message.content],
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
        content=tuple(TextPart(**part) for part in row["content"]),
        reasoning=row["reasoning"],
        tool_calls=tuple(ToolCall(**call) for call in row["tool_calls"]),
        tool_errors=tuple(ToolCallError(**error) for error in row["tool_errors"]),
        tool_call_id=row["tool_call_id"],
        name=row["name"],
    )


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
        "signals": [{"name": signal.name, "value": signal.value} for signal in turn.signals],
        "state": turn.state,
        "engine_s": turn.engine_s,
        "environment_s": turn.environment_s,
    }


def _turn_from_json(row: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Turn:
    context, completion = slice(*row["context"]), slice(*row["completion"])
    versions = arrays["versions"][completion] if "versions" in arrays else None
    if versions is not None and ((versions == row["version_first"]).all() or (versions == -1).all()):
        versions = None
    return Turn(
        parent=row["parent"],
        context_ids=to_ids(arrays["token_ids"][context]),
        completion=Completion(
            token_ids=to_ids(arrays["token_ids"][completion]),
            logprobs=to_floats(arrays["logprobs"][completion]),
            finish_reason=FinishReason(row["finish_reason"]),
            version_first=row["version_first"],
            version_last=row["version_last"],
            versions=None if versions is None else to_ids(versions),
            full_logprobs=to_floats(arrays["full_logprobs"][completion]) if row.get("guided") else None,
        ),
        message=message_from_json(row["message"]),
        observations=tuple(message_from_json(message) for message in row["observations"]),
        tool_records=tuple(
            ToolRecord(**{**record, "call": ToolCall(**record["call"])}) for record in row["tool_records"]
        ),
        signals=tuple(Signal(**signal) for signal in row["signals"]),
        state=row.get("state"),
        engine_s=row["engine_s"],
        environment_s=row["environment_s"],
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
    }


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
