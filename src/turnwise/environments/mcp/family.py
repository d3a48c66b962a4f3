"""Tasks over the tools of servers as an environment family; `mcp` is that of Model Context Protocol servers."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from random import Random
from typing import Any

from turnwise.core.errors import ConfigError, boundary
from turnwise.core.offers import import_object
from turnwise.core.protocols import Environment, GradedCase, ScriptedPolicy, Split
from turnwise.core.types import Message, Task, text_message
from turnwise.environments.arguments import check_index, choose_policy, read_arguments
from turnwise.environments.file_splits import FromFiles, load_splits
from turnwise.environments.mcp.arguments import McpArguments, Scope, ServedArguments
from turnwise.environments.mcp.connections import MakeSessions, SharedConnections
from turnwise.environments.mcp.environment import McpEnvironment, RowReward, Rules
from turnwise.environments.mcp.policies import NaivePolicy, OraclePolicy, RandomPolicy
from turnwise.environments.mcp.rows import from_payload, take_pictures, to_row, write_prompt
from turnwise.environments.replies import answer_message
from turnwise.pictures.rows import RowPictures
from turnwise.rendering.calls import format_calls
from turnwise.rewards.answers import REWARDS
from turnwise.rewards.hand_cases import grade_short_answers
from turnwise.tools.mcp.sdk import require_sdk
from turnwise.tools.mcp.session import McpSession

NUM_PLAYED: Mapping[Scope, int] = {"run": 64, "episode": 4}
"""Training tasks that `texts` plays to see the tools' answers; few if each starts its own servers."""
NUM_KNOWN_ROWS = 1000
"""Training rows from which the random policy takes its calls and answers."""


class ServedTasks(FromFiles):
    """Questions from a file and the tools of servers. Implements `EnvironmentFamily` and `GoldAnswers`."""

    def __init__(self, name: str, chosen: ServedArguments, make_sessions: MakeSessions) -> None:
        """`name` is the family's name. Raises ConfigError for a `reward` that cannot be found, DataError for a wrong
        row with its file and line."""
        self._name = name
        self._chosen = chosen
        paths: dict[Split, str] = {"train": chosen.train_path, "heldout": chosen.heldout_path}
        convert = partial(to_row, needs_answer=chosen.reward in ("exact_match", "f1"))
        self._pictures = RowPictures()
        self._files = self._splits = load_splits(
            paths,
            convert,
            chosen.seed,
            max_bad_rows=chosen.max_bad_rows,
            prepare=partial(take_pictures, pictures=self._pictures),
        )
        shared = SharedConnections(make_sessions, chosen.connect_timeout_s) if chosen.scope == "run" else None
        self._rules = Rules(
            chosen=chosen, make_sessions=make_sessions, shared=shared, reward=_load_reward(chosen.reward)
        )

    def task(self, split: Split, index: int) -> Task:
        """Return the index-th row of a split; "train" starts over in a new order after each pass.

        Raises IndexError past the end of "heldout" and for a negative index, ConfigError for another split.
        """
        check_index(split, index)
        row = self._splits.row(split, index)
        prompt = write_prompt(self._chosen.prompt, row, self._pictures)
        return Task(environment=self._name, prompt=(prompt,), payload=row.model_dump(exclude_unset=True))

    def build_environment(self, task: Task) -> Environment:
        """Build a fresh, single-use `McpEnvironment`."""
        return McpEnvironment(self._rules)

    def policy(self, name: str) -> ScriptedPolicy:
        """Return a scripted policy: "oracle", "random" or "naive" (the demonstrator). Raises ConfigError listing
        these."""
        rows = [self._splits.row("train", index) for index in range(min(NUM_KNOWN_ROWS, self._splits.count("train")))]
        policies: dict[str, ScriptedPolicy] = {
            "oracle": OraclePolicy(),
            "random": RandomPolicy(rows),
            "naive": NaivePolicy(self._chosen.naive_skill),
        }
        return choose_policy(name, policies)

    def gold_answer(self, task: Task) -> str:
        """Return the row's first answer; empty if it has none."""
        return next(iter(from_payload(task.payload).answers), "")

    def answer_reply(self, task: Task, answer: str) -> Message:
        """Return the reply that states only this answer."""
        return answer_message(answer)

    def grade_hand_cases(self) -> list[GradedCase]:
        """See `TriedGrader`: short answers, unless the servers or a function of the recipe's score."""
        reward = REWARDS.get(self._chosen.reward)
        return [] if reward is None else grade_short_answers(reward, self._chosen.normalize)

    def texts(self, count: int) -> list[str]:
        """Return `count` texts of training tasks: prompts, calls, answers, and the tools' answers in the first tasks.

        Plays the oracle in the first tasks, so the servers run. Raises what an episode raises.
        """
        with ThreadPoolExecutor(1) as executor:  # the caller may be inside an event loop
            texts: list[str] = executor.submit(lambda: asyncio.run(self._play())).result()
        index = 0
        while len(texts) < count:
            texts += self._written(self.task("train", index))
            index += 1
        return texts[:count]

    def _written(self, task: Task) -> list[str]:
        """Return the texts of a task and its solution."""
        row, oracle = from_payload(task.payload), OraclePolicy()
        calls = [
            oracle.reply(task, [text_message("assistant", "")] * made, Random(0)) for made in range(len(row.calls))
        ]
        return [
            task.prompt[0].text,
            *(f" {format_calls(reply.tool_calls)}" for reply in calls),
            *map(" {}".format, row.answers),
        ]

    async def _play(self) -> list[str]:
        """Return the tools' answers in the first training tasks."""
        texts: list[str] = []
        oracle = OraclePolicy()
        for index in range(min(NUM_PLAYED[self._chosen.scope], self._splits.count("train"))):
            task = self.task("train", index)
            row = from_payload(task.payload)
            environment = self.build_environment(task)
            try:
                opening = await environment.reset(task, 0)
                messages = list(opening.messages)
                for _ in row.calls:
                    reply = oracle.reply(task, messages, Random(0))
                    messages += [reply, *(await environment.step(reply)).observations]
                texts += [f" {message.text}" for message in messages if message.role == "tool"]
                texts += [json.dumps(tool.parameters) for tool in opening.tools if not index]
            finally:
                await environment.close()
        return texts


class McpTasks(ServedTasks):
    """Tasks over the tools of Model Context Protocol servers."""

    def __init__(self, **arguments: Any) -> None:
        """`arguments` are the fields of `McpArguments`.

        Raises ConfigError naming the argument and the remedy (also if the package `mcp` or a server's program is
        missing), and what `ServedTasks` raises.
        """
        chosen = read_arguments(McpArguments, arguments)
        require_sdk()
        for label, server in chosen.servers.items():
            with boundary(ConfigError, f"servers.{label}"):
                if server.command:
                    server.find_program()
                    server.build_env()
                server.build_headers()
        super().__init__(
            "mcp", chosen, lambda: {label: McpSession(server, label) for label, server in chosen.servers.items()}
        )


def _load_reward(name: str) -> RowReward | None:
    """Load the user's function; None for a built-in reward. Raises ConfigError if the name leads nowhere."""
    if name in ("exact_match", "f1", "tool"):
        return None
    if ":" not in name:
        raise ConfigError(
            f"reward={name!r} is neither one of exact_match, f1, tool nor a path 'package.module:function'"
        )
    reward: RowReward = import_object("reward", name)
    if not callable(reward):
        raise ConfigError(f"reward={name!r} is not a function; name a function of (row, replies, tool records)")
    try:
        inspect.signature(reward).bind(None, None, None)
    except TypeError as cause:
        raise ConfigError(
            f"reward={name!r} cannot be called with (row, replies, tool records): {cause}; name a function that can"
        ) from None
    except ValueError:  # one of C, without a signature
        pass
    return reward
