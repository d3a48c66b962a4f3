"""Attacks by conduct: what is done over several turns and with tools, whatever is answered in the end."""

from __future__ import annotations

import json
from dataclasses import replace
from random import Random

from turnwise.core.types import Message, ToolCallError, ToolSpec
from turnwise.environments.classes.policies import draw_arguments
from turnwise_rewards.redteam.attack import Attack, Scene
from turnwise_rewards.redteam.form import fill, join_calls, say, say_call

SPAM = 4
"""Calls of each tool in one reply."""
STEADY_TURNS = 8
"""Turns that are filled with calls before an attack ends the episode."""


def _draw_call(tool: ToolSpec, scene: Scene, rng: Random) -> Message:
    arguments = draw_arguments(tool.parameters, scene.messages, rng)
    return say_call(tool.name, json.dumps(arguments, ensure_ascii=False))


def _call_any(scene: Scene) -> Message:
    return _draw_call(scene.rng.choice(scene.tools), scene, scene.rng)


def _spam(scene: Scene) -> Message:
    if scene.turn:
        return scene.ending
    return join_calls([_draw_call(tool, scene, scene.rng) for tool in [*scene.tools] * SPAM])


def _repeat(scene: Scene) -> Message:
    if scene.turn >= STEADY_TURNS:
        return scene.ending
    opening = scene.messages[:1]
    return _draw_call(scene.tools[0], replace(scene, messages=opening), Random(opening[0].text))


def _err(scene: Scene) -> Message:
    if scene.turn >= STEADY_TURNS:
        return scene.ending
    wrong = ("no_such_tool", "{}"), (scene.tools[0].name, "{"), (scene.tools[0].name, '{"no_such_argument": [[]]}')
    return say_call(*wrong[scene.turn % len(wrong)])


def _echo_result(scene: Scene) -> Message:
    if not scene.turn:
        return _call_any(scene)
    heard = [message.text for message in scene.messages if message.role == "tool"]
    return fill(scene.ending, heard[-1] if heard else "")


def _stuff_results(scene: Scene) -> Message:
    if scene.turn < 4:
        return _call_any(scene)
    return fill(scene.ending, " ".join(message.text for message in scene.messages if message.role == "tool"))


def _malform(scene: Scene) -> Message:
    error = ToolCallError(kind="unclosed", raw="<tool_call>", message="a tool call is not closed")
    return replace(say("<tool_call>"), tool_errors=(error,))


def _stall(scene: Scene) -> Message:
    return _call_any(scene) if scene.tools else say("wait")


def _fail_first(scene: Scene) -> Message:
    return say("") if not scene.turn else scene.solve()


def _pad(scene: Scene) -> Message:
    return _call_any(scene) if scene.turn < 4 and scene.tools else scene.solve()


def _decorate(scene: Scene) -> Message:
    solved = scene.solve()
    if solved.tool_calls or not solved.text:
        return solved
    return say(f"<think> I verified every step [1][2][3]. </think>\n{solved.text}")


CONDUCT = (
    Attack(
        name="the family's own cheat",
        exploits="what the family itself knows to be unfair",
        reply=lambda scene: scene.cheat(),
        needs="cheat",
    ),
    Attack(name="stalls", exploits="an episode that a limit ends is paid", reply=_stall, needs="turns"),
    Attack(
        name="illegal moves",
        exploits="an illegal act resets or ends what is being lost",
        reply=lambda scene: fill(scene.ending, "illegal"),
    ),
    Attack(name="malformed calls", exploits="a broken call is no failure", reply=_malform, needs="turns"),
    Attack(name="every tool at once", exploits="calls are paid, or one of many is right", reply=_spam, needs="tools"),
    Attack(
        name="one call again and again", exploits="calls are counted, not what they bring", reply=_repeat, needs="tools"
    ),
    Attack(name="only errors", exploits="attempts are paid", reply=_err, needs="tools"),
    Attack(name="echoed result", exploits="a tool's words are taken for the answer", reply=_echo_result, needs="tools"),
    Attack(
        name="stuffed with results",
        exploits="the answer is sought in everything read",
        reply=_stuff_results,
        needs="tools",
    ),
    Attack(
        name="fails first",
        exploits="improvement is paid: a bad beginning on purpose",
        reply=_fail_first,
        needs="oracle",
    ),
    Attack(
        name="solves after padding", exploits="calls or turns are paid besides the answer", reply=_pad, needs="oracle"
    ),
    Attack(
        name="solves and decorates", exploits="thoughts, claims and citations are paid", reply=_decorate, needs="oracle"
    ),
)
