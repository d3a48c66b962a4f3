"""What the family `push` costs: actions, pictures and episodes per second, in cells and in MuJoCo.

    OMP_NUM_THREADS=1 python benchmarks/costs_push.py [SECONDS]

Times are processor seconds of this process, EGL's threads included, so that other programs on the machine hardly count.
MuJoCo's rows are left out, with a line that says so, where it is not installed.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import sys
import time
from collections.abc import Callable
from fractions import Fraction
from random import Random

from turnwise.environments.episodes import play_episode
from turnwise_worlds.push.body import Body, CellBody
from turnwise_worlds.push.family import Push
from turnwise_worlds.push.routes import find_route
from turnwise_worlds.push.show import draw
from turnwise_worlds.push.table import read_payload

SIDE = 6


def count_rate(work: Callable[[], object], seconds: float) -> float:
    """Return how many times `work` is done in a second of processor time, after a first time that does not count."""
    work()
    started, number = time.process_time(), 0
    while time.process_time() - started < seconds:
        work()
        number += 1
    return number / (time.process_time() - started)


def count_actions(first: Body, seconds: float) -> float:
    """Return random actions per second of a body, which starts again after 100."""
    random, at, number = Random(0), first, 0

    def act() -> None:
        nonlocal at, number
        number += 1
        at = first if number % 100 == 0 else at
        at = at.act((Fraction(random.randint(-4, 4)), Fraction(random.randint(-4, 4))))

    return count_rate(act, seconds)


def count_episodes(seconds: float, policy: str = "naive", **arguments: object) -> float:
    """Return whole episodes of a scripted policy per second, with their tasks; no route is known before."""
    find_route.cache_clear()
    family, number = Push(side=SIDE, **arguments), 0

    def play() -> None:
        nonlocal number
        number += 1
        task = family.task("train", number)
        asyncio.run(play_episode(family, task, family.policy(policy), seed=number, max_turns=6))

    return count_rate(play, seconds)


def measure(seconds: float) -> dict[str, float]:
    """Return rates per second by name; each is measured for so many seconds."""
    table = read_payload(Push(side=SIDE, kinds={"around": 1}).task("train", 0).payload)
    rates = {
        "actions in cells": count_actions(CellBody(table), seconds),
        "pictures drawn": count_rate(lambda: draw(table, hides_goal=False), seconds),
        "episodes in cells": count_episodes(seconds),
        "episodes in cells, random play": count_episodes(seconds, "random"),
        "episodes in cells, pictures": count_episodes(seconds, surface="picture"),
    }
    if importlib.util.find_spec("mujoco") is None:
        print("MuJoCo is not installed (extra `bodies`): its rows are left out", file=sys.stderr)
        return rates
    from turnwise_worlds.push.photograph import photograph
    from turnwise_worlds.push.physics import MujocoBody

    body = MujocoBody.open(table)
    rates["actions in MuJoCo"] = count_actions(body, seconds)
    rates["pictures by EGL"] = count_rate(lambda: photograph(body, hides_goal=False), seconds)
    rates["episodes in MuJoCo"] = count_episodes(seconds, body="mujoco")
    rates["episodes in MuJoCo, pictures by EGL"] = count_episodes(
        seconds, body="mujoco", surface="picture", camera="egl"
    )
    return rates


if __name__ == "__main__":
    rates = measure(float(sys.argv[1]) if len(sys.argv) > 1 else 3.0)
    print(json.dumps({name: round(rate, 1) for name, rate in rates.items()}, indent=1))
