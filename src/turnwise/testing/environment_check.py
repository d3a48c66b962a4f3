"""Check an environment before anything trains on it: is it solvable, hard to cheat, repeatable and without leaks?"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from statistics import mean
from typing import Any, Literal, get_args

from turnwise.audit.reward_attacks import ATTACKS, Spam
from turnwise.core.errors import ConfigError, EnvironmentFault, TurnwiseError, boundary
from turnwise.core.messages import list_images, to_plain_text
from turnwise.core.protocols import EnvironmentFamily, ScriptedPolicy, Split
from turnwise.core.types import (
    Invalid,
    Message,
    StopReason,
    Task,
    ToolCall,
    ToolCallError,
    Trajectory,
    TrajectoryId,
    text_message,
)
from turnwise.environments.draws import LeftOut, try_task
from turnwise.environments.episodes import (
    Episode,
    Played,
    Repeated,
    find_difference,
    play_at_once,
    play_episode,
    play_interleaved,
)
from turnwise.evaluation.summary import is_success

MIN_ORACLE = 0.95
MAX_RANDOM = 0.7
MAX_ATTACK = 0.4
MIN_LOSS = 0.25
"""Success rates at which a line fails; `MIN_LOSS` is what a control must at least cost the oracle."""
COPIES = 4
"""How often each task is played at the same time: what episodes share by mistake shows where several use it."""
MAX_PROMPT_CHARS = 100_000
"""A longer opening, tools included, fits no model that trains here."""

Verdict = Literal["pass", "fail", "skip"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckLine:
    """One line of the report."""

    check: str
    verdict: Verdict
    text: str
    """What was measured, or why nothing was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckPlan:
    """Size of the check."""

    num_tasks: int = 40
    """Held-out tasks per policy; fewer where the split ends."""
    max_turns: int = 16
    """Replies per episode."""
    timeout_s: float = 60.0
    """Seconds one check may take per task."""


class _Checked:
    """The tasks of one family and how they are played."""

    def __init__(self, family: EnvironmentFamily, plan: CheckPlan) -> None:
        self.family, self.plan = family, plan
        self.tasks = _take(family, "heldout", plan.num_tasks)

    def policy(self, name: str) -> ScriptedPolicy | None:
        """The scripted policy, None where the family has none of that name."""
        try:
            return self.family.policy(name)
        except ConfigError:
            return None

    async def play(self, policy: ScriptedPolicy, tasks: Sequence[Task]) -> list[Played]:
        """One episode per task, one after the other; its seed is the index."""
        plan = self.plan
        played = []
        for seed, task in enumerate(tasks):
            async with asyncio.timeout(plan.timeout_s):
                played.append(await play_episode(self.family, task, policy, seed=seed, max_turns=plan.max_turns))
        return played

    async def play_together(self, alone: Sequence[Played]) -> list[Played]:
        """The same replies to the same tasks, turn by turn in rotation; no policy is asked that could mend a leak."""
        async with asyncio.timeout(self.plan.timeout_s * len(alone)):
            return await play_interleaved(self._repeat(alone))

    async def play_at_once(self, alone: Sequence[Played]) -> list[Played]:
        """The same replies to the same tasks, `COPIES` times each and all at the same time."""
        async with asyncio.timeout(self.plan.timeout_s * len(alone)):
            return await play_at_once([episode for _ in range(COPIES) for episode in self._repeat(alone)])

    def _repeat(self, alone: Sequence[Played]) -> list[Episode]:
        return [
            Episode(self.family, played.task, Repeated(played.replies), seed=seed, max_turns=len(played.replies))
            for seed, played in enumerate(alone)
        ]


def check_environment(
    build: Callable[..., EnvironmentFamily],
    *,
    controls: Mapping[str, Mapping[str, Any]] | None = None,
    plan: CheckPlan | None = None,
) -> list[CheckLine]:
    """Every line of the report. `build` makes the family, with a control's changes as keyword arguments.

    What the environment raises is a failed line that says what; nothing is raised. Runs an event loop of its own.
    """
    return asyncio.run(_check(build, controls or {}, plan or CheckPlan()))


async def _check(
    build: Callable[..., EnvironmentFamily], controls: Mapping[str, Mapping[str, Any]], plan: CheckPlan
) -> list[CheckLine]:
    lines: list[CheckLine] = []

    async def run(check: str, work: Callable[[], Awaitable[tuple[Verdict, str]]]) -> bool:
        try:
            with boundary(EnvironmentFault, "the environment raised"):
                verdict, text = await work()
        except (TurnwiseError, TimeoutError) as error:
            verdict, text = "fail", str(error) or f"ran past {plan.timeout_s:g} s"
        lines.append(CheckLine(check=check, verdict=verdict, text=text))
        return verdict == "pass"

    async def check_tasks() -> tuple[Verdict, str]:
        return _compare_tasks(build(), build())

    if not await run("tasks", check_tasks):
        return lines
    checked = _Checked(build(), plan)
    await run("held-out tasks", lambda: _check_splits(checked))
    await run("tools", lambda: _check_tools(checked))
    await run("oracle", lambda: _check_oracle(checked))
    await run("random", lambda: _check_random(checked))
    for name, changes in controls.items():
        await run(f"control {name}", lambda changes=changes: _check_control(checked, build, changes))  # type: ignore[misc]
    if not controls:
        lines.append(CheckLine(check="controls", verdict="skip", text="none given (--control search=off)"))
    await run("same seed, same episode", lambda: _check_seeds(checked))
    await run("no leaks between episodes", lambda: _check_leaks(checked))
    await run("malformed calls", lambda: _check_malformed(checked))
    for name, attack in ATTACKS.items():
        await run(f"attack: {name}", lambda attack=attack: _check_attack(checked, attack))  # type: ignore[misc]
    await run("attack: every tool at once", lambda: _check_spam(checked))
    await run("time", lambda: _check_time(checked))
    return lines


# ------------------------------------------------------------------------------------------------ tasks and tools


def _take(family: EnvironmentFamily, split: Split, count: int) -> list[Task]:
    tasks: list[Task] = []
    for index in range(count):
        try:
            task = try_task(family, split, index)
        except IndexError:
            break
        if isinstance(task, LeftOut):
            raise EnvironmentFault(task.why)
        tasks.append(task)
    return tasks


def _compare_tasks(family: EnvironmentFamily, other: EnvironmentFamily) -> tuple[Verdict, str]:
    splits: dict[Split, list[Task]] = {split: _take(family, split, 40) for split in get_args(Split)}
    for split, tasks in splits.items():
        if not tasks:
            return "fail", f"split {split!r} has no task"
        for index in reversed(range(len(tasks))):
            task = other.task(split, index)
            if task != tasks[index]:
                return "fail", f"task {index} of split {split!r} is another one when it is built again"
            if not _is_plain(task.payload):
                return "fail", f"the payload of task {index} of split {split!r} is not plain JSON"
    return "pass", "a pure function of split and index"


def _is_plain(payload: Mapping[str, Any]) -> bool:
    try:
        return bool(json.loads(json.dumps(dict(payload), allow_nan=False)) == payload)
    except (TypeError, ValueError):
        return False


async def _check_splits(checked: _Checked) -> tuple[Verdict, str]:
    train, heldout = _take(checked.family, "train", 200), _take(checked.family, "heldout", 200)
    shared = len({task.id for task in train} & {task.id for task in heldout})
    verdict: Verdict = "fail" if shared else "pass"
    return verdict, f"the splits share {shared} of their first {min(len(train), len(heldout))} tasks"


async def _check_tools(checked: _Checked) -> tuple[Verdict, str]:
    """Every tool and every parameter says what it is; the opening fits."""
    lengths, names, pictures = [], set(), []
    for seed, task in enumerate(checked.tasks):
        episode = Episode(checked.family, task, _Silent(), seed=seed, max_turns=1)
        async with asyncio.timeout(checked.plan.timeout_s):
            (played,) = await play_interleaved([episode])
        opening = played.opening
        texts = [to_plain_text(message) for message in opening.messages]
        pictures.append(len(list_images(opening.messages)))
        schemas = [json.dumps([tool.description, dict(tool.parameters)]) for tool in opening.tools]
        lengths.append(sum(map(len, [*texts, *schemas])))
        if not any(texts):
            return "fail", f"task {task.id} opens without any text or picture"
        for tool in opening.tools:
            names.add(tool.name)
            bare = [name for name, part in tool.properties.items() if not _is_described(part)]
            if not tool.description or bare:
                what = f"parameter {bare[0]!r} of tool" if bare else "tool"
                return "fail", f"{what} {tool.name!r} has no description or no type; the model reads nothing else"
    shown = ", ".join(sorted(names)[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
    text = f"{shown or 'no tool'}; openings of {min(lengths)} to {max(lengths)} characters"
    if any(pictures):
        text += f" and {min(pictures)} to {max(pictures)} pictures"
    return ("fail" if max(lengths) > MAX_PROMPT_CHARS else "pass"), text


def _is_described(schema: Mapping[str, Any] | bool) -> bool:
    if not isinstance(schema, Mapping):
        return False
    return bool(schema.get("description")) and bool({"type", "anyOf", "enum", "oneOf", "$ref"} & schema.keys())


class _Silent:
    """Says nothing."""

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        return text_message("assistant", "")


# ------------------------------------------------------------------------------------------------ success


def _rate(episodes: Sequence[Played]) -> float:
    """Share of the episodes that succeed, judged as an evaluation does; of several roles, their mean. Raises
    ConfigError for an Invalid reward."""
    identity = TrajectoryId(draw=0, member=0)
    for played in episodes:
        if (reason := _find_failure(played)) is not None:
            raise ConfigError(f"task {played.task.id} has no reward: {reason}")
    return mean(
        is_success(Trajectory(id=identity, task_id="", turns=(), stop=StopReason.DONE, reward=reward))
        for played in episodes
        for reward in played.rewards.values()
    )


def _find_failure(played: Played) -> str | None:
    """Why a role has no reward; None where all have one."""
    return next((each.reason for each in played.rewards.values() if isinstance(each, Invalid)), None)


async def _check_oracle(checked: _Checked) -> tuple[Verdict, str]:
    policy = checked.policy("oracle")
    if policy is None:
        return "skip", "there is no oracle, so nothing shows that the tasks can be solved"
    rate = _rate(await checked.play(policy, checked.tasks))
    verdict: Verdict = "pass" if rate >= MIN_ORACLE else "fail"
    return verdict, f"succeeds on {rate:.0%} of {len(checked.tasks)} tasks (at least {MIN_ORACLE:.0%})"


async def _check_random(checked: _Checked) -> tuple[Verdict, str]:
    policy = checked.policy("random")
    if policy is None:
        return "fail", "there is no policy 'random'"
    episodes = await checked.play(policy, checked.tasks)
    rate = _rate(episodes)
    crashes = sorted({error for played in episodes for error in _crashes(played)})
    if crashes:
        return "fail", f"a tool raised what a model cannot put right: {crashes[0]}"
    verdict: Verdict = "pass" if rate <= MAX_RANDOM else "fail"
    text = f"succeeds on {rate:.0%} of {len(checked.tasks)} tasks (at most {MAX_RANDOM:.0%})"
    return verdict, text + _describe_exceptions(episodes) + _describe_cuts(episodes)


def _describe_exceptions(episodes: Sequence[Played]) -> str:
    """What tools' own code raised and the model was told, by tool and kind of exception; empty for nothing."""
    records = [record for played in episodes for result in played.results for record in result.tool_records]
    raised = Counter(
        f"{record.call.name} raises {record.exception.split(':')[0]}" for record in records if record.exception
    )
    if not raised:
        return ""
    listed = ", ".join(f"{what} in {count}" for what, count in raised.most_common(3))
    return f"; {listed} of {len(records)} calls (raise ValueError for what the model did wrong)"


def _describe_cuts(episodes: Sequence[Played]) -> str:
    """Which tools returned more than the model is shown; empty for none."""
    records = [record for played in episodes for result in played.results for record in result.tool_records]
    cut = Counter(record.call.name for record in records if record.clipped_chars)
    listed = ", ".join(f"results of {name} are cut in {count}" for name, count in cut.most_common(3))
    return f"; {listed} of {len(records)} calls (environment.max_observation_chars; return pages)" if cut else ""


CRASHES = ("AttributeError", "AssertionError", "ImportError", "NameError", "RecursionError", "UnboundLocalError")
"""Exceptions of a plain class's tool that are mistakes in the tool, whatever the model wrote."""


def _crashes(played: Played) -> Iterator[str]:
    for result in played.results:
        for record in result.tool_records:
            if record.exception is not None and record.exception.split(":")[0] in CRASHES:
                yield f"{record.call.name}({record.call.arguments}): {record.exception}"


async def _check_control(
    checked: _Checked, build: Callable[..., EnvironmentFamily], changes: Mapping[str, Any]
) -> tuple[Verdict, str]:
    policy = checked.policy("oracle")
    if policy is None:
        return "skip", "there is no oracle to fail under it"
    control = _Checked(build(**changes), checked.plan)
    plain = _rate(await checked.play(policy, checked.tasks))
    rate = _rate(await control.play(control.family.policy("oracle"), control.tasks))
    verdict: Verdict = "pass" if plain - rate >= MIN_LOSS else "fail"
    return verdict, f"{dict(changes)} takes the oracle from {plain:.0%} to {rate:.0%} (at least {MIN_LOSS:.0%} down)"


async def _check_attack(checked: _Checked, attack: ScriptedPolicy) -> tuple[Verdict, str]:
    rate = _rate(await checked.play(attack, checked.tasks))
    verdict: Verdict = "pass" if rate <= MAX_ATTACK else "fail"
    return verdict, f"succeeds on {rate:.0%} of {len(checked.tasks)} tasks (at most {MAX_ATTACK:.0%})"


async def _check_spam(checked: _Checked) -> tuple[Verdict, str]:
    """As lucky as random play is allowed to be, and no luckier."""
    episodes = []
    for seed, task in enumerate(checked.tasks):
        opening = (await checked.play(_Silent(), [task]))[0].opening
        episode = Episode(checked.family, task, Spam(opening.tools), seed=seed, max_turns=2)
        async with asyncio.timeout(checked.plan.timeout_s):
            episodes += await play_interleaved([episode])
    rate = _rate(episodes)
    verdict: Verdict = "pass" if rate <= MAX_RANDOM else "fail"
    return verdict, f"succeeds on {rate:.0%} of {len(episodes)} tasks (at most {MAX_RANDOM:.0%})"


# ------------------------------------------------------------------------------------------------ repetition


def _list_players(checked: _Checked) -> list[tuple[str, ScriptedPolicy]]:
    policies = ((name, checked.policy(name)) for name in ("oracle", "random"))
    return [(name, policy) for name, policy in policies if policy is not None]


async def _check_seeds(checked: _Checked) -> tuple[Verdict, str]:
    tasks = checked.tasks[:10]
    for name, policy in _list_players(checked):
        first, second = await checked.play(policy, tasks), await checked.play(policy, tasks)
        for one, other in zip(first, second, strict=True):
            if difference := find_difference(one, other):
                return "fail", f"task {one.task.id} played twice by {name!r} with one seed: {difference}"
    return "pass", f"{len(tasks)} episodes of each policy, played twice"


async def _check_leaks(checked: _Checked) -> tuple[Verdict, str]:
    tasks = checked.tasks[:10]
    for name, policy in _list_players(checked):
        alone = await checked.play(policy, tasks)
        together = await checked.play_together(alone)
        for one, other in zip(alone, together, strict=True):
            if difference := find_difference(one, other):
                return "fail", f"task {one.task.id} played by {name!r} alone and among others: {difference}"
        for index, other in enumerate(await checked.play_at_once(alone)):
            if difference := find_difference(alone[index % len(alone)], other):
                return "fail", f"task {other.task.id} played by {name!r} alone and while others are: {difference}"
    return "pass", f"{len(tasks)} episodes of each policy, alone, interleaved and {COPIES} of each at the same time"


# ------------------------------------------------------------------------------------------------ bad calls and time


async def _check_malformed(checked: _Checked) -> tuple[Verdict, str]:
    """Calls that no tool can take are answered, and leave an episode that can be scored."""
    task = checked.tasks[0]
    opening = (await checked.play(_Silent(), [task]))[0].opening
    name = opening.tools[0].name if opening.tools else "no_such_tool"
    error = ToolCallError(kind="bad_json", raw="{", message="a tool call is not valid JSON")
    replies = {
        "a reply that is no call": text_message("assistant", "", tool_errors=(error,)),
        "an unknown tool": _call("no_such_tool", "{}"),
        "arguments that are no JSON": _call(name, "{"),
        "unknown arguments": _call(name, '{"no_such_argument": 1}'),
        "arguments of every wrong type": _call(name, json.dumps(_wrong_arguments(opening.tools))),
    }
    for what, reply in replies.items():
        policy = _Fixed(reply)
        (played,) = await checked.play(policy, [task])
        if (reason := _find_failure(played)) is not None:
            return "fail", f"{what} leaves an episode without a reward: {reason}"
        if not played.results[0].done and not played.results[0].observations:
            return "fail", f"{what} gets no answer"
    return "pass", f"{len(replies)} kinds are answered"


def _wrong_arguments(tools: Sequence[Any]) -> dict[str, Any]:
    return {name: [[]] for name in tools[0].properties} if tools else {}


def _call(name: str, arguments: str) -> Message:
    return text_message("assistant", "", tool_calls=(ToolCall(id="call_0", name=name, arguments=arguments),))


@dataclass(frozen=True, slots=True)
class _Fixed:
    """Says one thing once, then nothing."""

    first: Message

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        return text_message("assistant", "") if messages[-1].role == "tool" else self.first


async def _check_time(checked: _Checked) -> tuple[Verdict, str]:
    policy = checked.policy("random") or _Silent()
    seconds = [played.seconds for played in await checked.play(policy, checked.tasks[:10])]
    parts = {
        "reset": [each[0] for each in seconds],
        "step": [value for each in seconds for value in each[1:-1]],
        "score": [each[-1] for each in seconds],
    }
    return "pass", ", ".join(
        f"{name} {mean(values) * 1000:.1f} ms (at most {max(values) * 1000:.1f})" for name, values in parts.items()
    )
