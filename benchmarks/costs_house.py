"""Print what text houses cost, as JSON on standard output: steps and episodes per second of processor time.

    python benchmarks/costs_house.py [SECONDS]

Random commands in houses of 8 places and 6 things, in both styles, with making the house counted; and the policy that
knows the house, which follows the conversation from its start at every reply.
"""

from __future__ import annotations

import json
import sys
import time
from random import Random

from turnwise.core.types import Message
from turnwise.rewards.answers import extract_answer
from turnwise_worlds.house.arguments import HouseArguments
from turnwise_worlds.house.family import House
from turnwise_worlds.house.session import Session
from turnwise_worlds.house.styles import StyleName
from turnwise_worlds.house.world import list_actions


def measure(seconds: float) -> dict[str, float]:
    """Return steps and episodes per second by style, and replies per second of the oracle, each over so many seconds of
    processor time."""
    measured: dict[str, float] = {}
    styles: tuple[StyleName, ...] = ("full", "terse")
    for style in styles:
        steps, episodes, taken = _play_random(HouseArguments(style=style), seconds)
        measured[f"{style}_steps_per_s"], measured[f"{style}_episodes_per_s"] = steps / taken, episodes / taken
    replies, taken = _ask_oracle(House(style="terse"), seconds)
    measured["oracle_replies_per_s"] = replies / taken
    return {name: round(value, 1) for name, value in measured.items()}


def _play_random(chosen: HouseArguments, seconds: float) -> tuple[int, int, float]:
    steps = episodes = 0
    started, random = time.process_time(), Random(0)
    while time.process_time() - started < seconds:
        session = Session.open({"kind": "put", "seed": episodes}, chosen)
        while not session.is_over:
            actions = list(list_actions(session.house, session.state))
            session = session.command(session.style.command(random.choice(actions)))
            steps += 1
        episodes += 1
    return steps, episodes, time.process_time() - started


def _ask_oracle(family: House, seconds: float) -> tuple[int, float]:
    replies = index = 0
    started, policy, random = time.process_time(), family.policy("oracle"), Random(0)
    while time.process_time() - started < seconds:
        task = family.task("heldout", index)
        session, said = Session.open(task.payload, HouseArguments(style="terse")), list[Message](task.prompt)
        while not session.is_over:
            said.append(policy.reply(task, said, random))
            session = session.command(extract_answer(said[-1].text) or "")
            replies += 1
        index += 1
    return replies, time.process_time() - started


if __name__ == "__main__":
    print(json.dumps(measure(float(sys.argv[1]) if len(sys.argv) > 1 else 5.0), indent=1))
