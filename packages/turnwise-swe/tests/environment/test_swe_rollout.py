"""A scripted engine plays whole episodes through the rollout, token by token, in both protocols."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from driving import CORE, RIGHT, call_message
from transformers import PreTrainedTokenizerBase

from turnwise.core.types import Draw, Message, Scored, StopReason, Trajectory, text_message
from turnwise.engines.scripted import ScriptedEngine
from turnwise.rendering.template import TemplateRenderer
from turnwise.rendering.tokenizer import train_tokenizer
from turnwise.rollout.attempt import Attempt, Sampling
from turnwise.rollout.limits import Limits
from turnwise.rollout.loop import run_trajectory
from turnwise_swe.environment.family import Swe
from turnwise_swe.environment.mini import MARKER, write_command

LIMITS = Limits(max_turns=6, max_turn_tokens=400, max_tokens=6000, timeout_s=300.0)
TESTS = "tests/test_core.py::test_total"
TOOLS = [
    call_message(call, number)
    for number, call in enumerate([("test", {"tests": TESTS}), RIGHT, ("test", {"tests": TESTS}), ("submit", {})])
]
MINI = [
    text_message("assistant", write_command(command, "THOUGHT: go on."))
    for command in (f"nl -ba {CORE}", f"sed -i '5s/a - b/a + b/' {CORE}", f"echo {MARKER}")
]


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerBase:
    return train_tokenizer([CORE, MARKER, TESTS], vocab_size=400, special_tokens=("<|endoftext|>",))


def play(
    tokenizer: PreTrainedTokenizerBase, arguments: dict[str, Any], script: list[Message]
) -> tuple[Trajectory, Callable[[int], str]]:
    """The trajectory, and what the engine read before a reply."""
    family = Swe(**arguments)
    renderer = TemplateRenderer(tokenizer, calls="hermes")
    engine = ScriptedEngine(renderer, script)
    attempt = Attempt(draw=Draw(index=0, task=family.task("train", 0)), member=0, number=0)
    environment = family.build_environment(attempt.draw.task)
    sampling = Sampling(temperature=1.0, top_p=1.0, seed=0)
    trajectory = asyncio.run(run_trajectory(attempt, environment, engine, renderer, LIMITS, sampling))
    return trajectory, lambda number: str(tokenizer.decode(engine.requests[number][1]))


def test_an_episode_with_tools(tokenizer: PreTrainedTokenizerBase, arguments: dict[str, Any]) -> None:
    trajectory, read = play(tokenizer, arguments, TOOLS)
    assert trajectory.error is None
    assert trajectory.stop is StopReason.DONE
    assert isinstance(trajectory.reward, Scored)
    assert trajectory.reward.total == 1.0
    assert "Sums are wrong." in read(0)
    assert "edit_lines(" in read(0)
    assert f"1 of 1 fail\n{TESTS}: assert -5 == 5" in read(1)
    assert f"changed {CORE} at line 5" in read(2)
    assert "all pass: 1 tests" in read(3)
    assert [record.call.name for turn in trajectory.turns for record in turn.tool_records] == [
        "test", "edit", "test", "submit",
    ]  # fmt: skip
    assert len({turn.state for turn in trajectory.turns}) == 4


def test_an_episode_in_minis_protocol(tokenizer: PreTrainedTokenizerBase, arguments: dict[str, Any]) -> None:
    trajectory, read = play(tokenizer, {**arguments, "protocol": "mini"}, MINI)
    assert trajectory.error is None
    assert trajectory.stop is StopReason.DONE
    assert isinstance(trajectory.reward, Scored)
    assert trajectory.reward.total == 1.0
    assert MARKER in read(0)
    assert "<returncode>0</returncode>\n<output>\n     1\t" in read(1)
    assert "<returncode>0</returncode>\n<output>\n</output>" in read(2)
    assert trajectory.turns[0].message.text == "THOUGHT: go on.\n\n```mswea_bash_command\nnl -ba src/sums/core.py\n```"
