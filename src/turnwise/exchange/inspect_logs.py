"""Transcripts in Inspect's log format, `.eval` files that `inspect view` and `inspect_ai.log` open."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from turnwise.core.errors import ConfigError
from turnwise.core.messages import ImagePart
from turnwise.core.relations import name_cluster
from turnwise.core.types import Invalid, Message, Scored, TrajectoryGroup
from turnwise.exchange.conversations import Conversation, find_total, text_of, tool_to_json
from turnwise.pictures.chat_parts import EMBEDDED, ToUrl


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFacts:
    """Facts about the run that a log contains."""

    task: str
    """Name of the evaluation or step."""
    run: str
    model: str
    created: float
    """Unix seconds."""
    options: dict[str, Any]
    """The recipe, stored as metadata."""


def check_inspect() -> None:
    """Raise ConfigError naming the remedy if inspect-ai is not installed."""
    if find_spec("inspect_ai") is None:
        raise ConfigError("the inspect format needs inspect-ai; install it with: pip install 'turnwise[inspect]'")


def write_inspect_log(
    path: Path, conversations: Sequence[Conversation], facts: LogFacts, *, to_url: ToUrl = EMBEDDED
) -> None:
    """Write one log with a sample per conversation; `to_url` gives the addresses of pictures. Raises ConfigError
    without inspect-ai, OSError from the disk, and what `to_url` raises."""
    check_inspect()
    from inspect_ai.log import EvalConfig, EvalDataset, EvalLog, EvalResults, EvalSpec, EvalStats, write_eval_log

    names = name_samples([each.group for each in conversations])
    samples = [_to_sample(each, facts.model, name, to_url) for each, name in zip(conversations, names, strict=True)]
    totals = [total for each in conversations if (total := find_total(each.trajectory)) is not None]
    created = datetime.fromtimestamp(facts.created, UTC).isoformat(timespec="seconds")
    usage = _add_usage([_usage(each) for each in conversations])
    log = EvalLog(
        status="success",
        eval=EvalSpec(
            created=created,
            task=facts.task,
            task_id=_identify(facts.run, facts.task),
            run_id=_identify(facts.run),
            eval_id=_identify(facts.run, facts.task, "eval"),
            model=facts.model,
            dataset=EvalDataset(name=facts.run, samples=len(set(names)), shuffled=False),
            config=EvalConfig(),
            metadata=facts.options,
        ),
        results=EvalResults(
            total_samples=len(samples), completed_samples=len(totals), scores=_summarise(conversations)
        ),
        stats=EvalStats(started_at=created, completed_at=created, model_usage={facts.model: usage}),
        samples=samples,
    )
    write_eval_log(log, str(path))


def name_samples(groups: Sequence[TrajectoryGroup]) -> list[str]:
    """A name for the sample of each group: its task's id, followed by the draw for further draws of the same task.

    Inspect takes two samples of one name and epoch for one.
    """
    first: dict[str, int] = {}
    names = []
    for group in groups:
        draw = group.draw.index
        is_first = first.setdefault(group.task.id, draw) == draw
        names.append(group.task.id if is_first else f"{group.task.id}@{draw}")
    return names


def _to_sample(conversation: Conversation, model: str, name: str, to_url: ToUrl) -> Any:
    from inspect_ai.log import EvalError, EvalSample
    from inspect_ai.model import ChatCompletionChoice, ModelOutput

    trajectory, group = conversation.trajectory, conversation.group
    messages = [_to_message(message, model, to_url) for message in conversation.messages]
    replies = [message for message in messages if message.role == "assistant"]
    usage = _usage(conversation)
    error = None
    if isinstance(trajectory.reward, Invalid):
        text = trajectory.error or trajectory.reward.reason
        error = EvalError(message=text, traceback=text, traceback_ansi=text)
    return EvalSample(
        id=f"{name}#{conversation.index}" if conversation.index else name,
        epoch=trajectory.id.member + 1,
        input=[_to_message(message, model, to_url) for message in conversation.opening.messages],
        target=_find_target(group),
        messages=messages,
        output=ModelOutput(
            model=model,
            choices=[ChatCompletionChoice(message=replies[-1], stop_reason=_find_stop(conversation))]
            if replies
            else [],
            usage=usage,
        ),
        scores=_to_scores(conversation),
        metadata={
            "draw": group.draw.index,
            "attempt": trajectory.id.attempt,
            "stop": trajectory.stop.value,
            "kind": group.task.payload.get("kind"),
            "cluster": name_cluster(group.task),
            "version": group.version,
            "tools": [tool_to_json(tool) for tool in conversation.opening.tools],
            "signals": [{signal.name: signal.value for signal in turn.signals} for turn in conversation.turns],
        },
        model_usage={model: usage},
        total_time=sum(turn.engine_s + turn.environment_s for turn in conversation.turns),
        error=error,
    )


def _to_message(message: Message, model: str, to_url: ToUrl) -> Any:
    from inspect_ai.model import (
        ChatMessageAssistant,
        ChatMessageSystem,
        ChatMessageTool,
        ChatMessageUser,
        ContentImage,
        ContentReasoning,
        ContentText,
    )

    text = text_of(message)
    content: Any = text
    if message.images:
        content = [
            ContentImage(image=to_url(part)) if isinstance(part, ImagePart) else ContentText(text=part.text)
            for part in message.content
        ]
    match message.role:
        case "system":
            return ChatMessageSystem(content=content)
        case "user":
            return ChatMessageUser(content=content)
        case "tool":
            return ChatMessageTool(content=content, tool_call_id=message.tool_call_id, function=message.name)
    if message.reasoning is not None:
        content = [ContentReasoning(reasoning=message.reasoning), ContentText(text=text)]
    return ChatMessageAssistant(content=content, tool_calls=_to_calls(message) or None, model=model)


def _to_calls(message: Message) -> list[Any]:
    """Convert the calls; arguments that are not a JSON object become text with a parse error."""
    from inspect_ai.tool import ToolCall

    calls = []
    for call in message.tool_calls:
        try:
            arguments, problem = json.loads(call.arguments), None
        except (ValueError, RecursionError) as cause:
            arguments, problem = None, f"arguments are not JSON: {cause}"
        if not isinstance(arguments, dict):
            arguments, problem = {"text": call.arguments}, problem or "arguments are not an object"
        calls.append(ToolCall(id=call.id, function=call.name, arguments=arguments, parse_error=problem))
    return calls


def _to_scores(conversation: Conversation) -> dict[str, Any] | None:
    """The reward and each of its parts; None if it could not be judged."""
    from inspect_ai.scorer import Score

    reward = conversation.trajectory.reward
    if not isinstance(reward, Scored):
        return None
    replies = [turn.message.text for turn in conversation.turns]
    answer = replies[-1] if replies else None
    scores = {"reward": Score(value=reward.total, answer=answer)}
    return scores | {part.name: Score(value=part.value) for part in reward.parts if part.name != "reward"}


def _summarise(conversations: Sequence[Conversation]) -> list[Any]:
    """The mean of the reward and of each part over the samples that have it."""
    from inspect_ai.log import EvalMetric, EvalScore

    values: dict[str, list[float]] = {}
    for conversation in conversations:
        reward = conversation.trajectory.reward
        if isinstance(reward, Scored):
            parts = {part.name: part.value for part in reward.parts} | {"reward": reward.total}
            for name, value in parts.items():
                values.setdefault(name, []).append(value)
    return [
        EvalScore(
            name=name,
            scorer=name,
            scored_samples=len(numbers),
            metrics={"mean": EvalMetric(name="mean", value=sum(numbers) / len(numbers))},
        )
        for name, numbers in values.items()
    ]


def _find_stop(conversation: Conversation) -> Any:
    last = conversation.turns[-1]
    if last.completion.finish_reason.value == "length":
        return "max_tokens"
    return "tool_calls" if last.message.tool_calls else "stop"


def _find_target(group: TrajectoryGroup) -> Any:
    answers = group.task.payload.get("answers")
    return [str(answer) for answer in answers] if isinstance(answers, list) else ""


def _usage(conversation: Conversation) -> Any:
    """Numbers of tokens that the engine was given and that it sampled: each reply sees everything before it."""
    from inspect_ai.model import ModelUsage

    given = sampled = length = 0
    for turn in conversation.turns:
        length += len(turn.context_ids)
        given += length
        sampled += len(turn.completion.token_ids)
        length += len(turn.completion.token_ids)
    return ModelUsage(input_tokens=given, output_tokens=sampled, total_tokens=given + sampled)


def _add_usage(usages: Sequence[Any]) -> Any:
    from inspect_ai.model import ModelUsage

    return sum(usages, ModelUsage())


def _identify(*names: str) -> str:
    """A stable identifier of 22 characters, like Inspect's own."""
    return hashlib.sha256("/".join(names).encode("utf-8", "replace")).hexdigest()[:22]
