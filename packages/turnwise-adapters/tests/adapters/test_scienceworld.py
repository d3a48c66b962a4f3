"""ScienceWorld through the adapter, with its Java processes. One family, so that Java starts as seldom as possible."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from played_games import GROUP, need, play

from turnwise.core.errors import ConfigError, EnvironmentFault
from turnwise.core.types import Task
from turnwise.environments.registry import load_family
from turnwise_adapters.scienceworld.family import ScienceWorld
from turnwise_adapters.scienceworld.server import Scene
from turnwise_adapters.scienceworld.servers import Servers

FAMILY = "turnwise_adapters.scienceworld.family:ScienceWorld"
TASKS = {"find-non-living-thing": 1.0}
FIND = Scene(task="find-non-living-thing", variation=0, simplifications="easy")


def need_java() -> None:
    need("scienceworld", "worlds")
    if shutil.which("java") is None and GROUP != "worlds":
        pytest.skip("needs java")


@pytest.fixture(scope="module")
def family() -> Iterator[ScienceWorld]:
    need_java()
    built = ScienceWorld(tasks=TASKS, max_actions=12, num_servers=2)
    yield built
    built.servers.close()


def open_game(family: ScienceWorld, seed: int) -> Any:
    game = family.build_game()
    game.open(seed)
    return game


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        return file.read().rpartition(")")[2].split()[0] != "Z"


def test_tasks_repeat_and_the_simulators_own_solution_is_worth_1(family: ScienceWorld) -> None:
    tasks: list[Task] = [family.task("heldout", at) for at in range(2)]
    assert tasks == [family.task("heldout", at) for at in range(2)]
    assert tasks[0].prompt[0].text.startswith("Your task is to find a(n) non-living thing.")
    messages, reward = asyncio.run(play(family, tasks[0], "oracle"))
    assert (reward.total, reward.part("success"), reward.part("score")) == (1.0, 1.0, 100.0)
    assert reward.part("failed") == 0.0
    assert len(messages) >= 3


def test_a_task_that_failed_for_good_has_a_name_and_is_worth_0() -> None:
    need_java()
    # Focusing on the wrong thing fails a task of this kind: ScienceWorld's score is -100.
    family = ScienceWorld(tasks={"find-living-thing": 1.0}, num_servers=1, max_actions=5)
    try:
        game = open_game(family, 1)
        outcome = game.step("focus on agent")
        for action in ("focus on door to kitchen", "focus on door to hallway", "focus on air"):
            if not outcome.done:
                outcome = game.step(action)
        assert (outcome.done, outcome.won) == (True, False)
        assert game.report() == {"score": -100.0, "failed": 1.0}
        assert outcome.reward <= 0.0
    finally:
        family.servers.close()


def test_what_the_simulator_does_not_understand_is_an_illegal_action(family: ScienceWorld) -> None:
    game = open_game(family, 2)
    with pytest.raises(Exception, match="No known action matches that input"):
        game.step("import os")
    assert game.step("look around").text.startswith("This room is called")


def test_more_episodes_than_processes_see_what_one_alone_sees(family: ScienceWorld) -> None:
    actions = ["look around", "teleport to kitchen", "open fridge", "teleport to workshop", "inventory"]
    alone = []
    for seed in (1, 3, 5):
        game = open_game(family, seed)
        alone.append([game.step(action).text for action in actions])
        game.close()
    games = [open_game(family, seed) for seed in (1, 3, 5)]
    together: list[list[str]] = [[], [], []]
    for action in actions:  # three episodes take turns at two processes
        for seen, game in zip(together, games, strict=True):
            seen.append(game.step(action).text)
    assert together == alone
    for game in games:
        game.close()


def test_a_process_killed_between_actions_costs_nothing_and_one_killed_in_an_action_costs_that_episode(
    family: ScienceWorld,
) -> None:
    game, other = open_game(family, 1), open_game(family, 3)
    undisturbed = open_game(family, 1)
    expected = [undisturbed.step(action).text for action in ("go to kitchen", "look around")]
    game.step("go to kitchen")
    other.step("look around")
    for server in family.servers._all:
        os.kill(server.pid, signal.SIGKILL)
        server._process.wait(20)
    assert game.step("look around").text == expected[1]
    [server] = [each for each in family.servers._all if each.owner is game]
    os.kill(server.pid, signal.SIGSTOP)  # it is in the middle of an action until it is killed
    raised: list[EnvironmentFault] = []

    def step() -> None:
        try:
            game.step("inventory")
        except EnvironmentFault as error:
            raised.append(error)

    thread = threading.Thread(target=step)
    thread.start()
    deadline = time.monotonic() + 20
    while server in family.servers._idle and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(server.pid, signal.SIGKILL)
    thread.join(30)
    assert "failed in step" in str(raised[0])
    assert other.step("look around").text.startswith("This room")
    for each in (game, other, undisturbed):
        each.close()


def test_closing_ends_the_processes() -> None:
    need_java()
    servers = Servers(1, 60.0)
    with servers.use(None) as server:
        server.load(FIND)
        assert is_running(server.pid)
    servers.close()
    assert not is_running(server.pid)


def test_nothing_is_left_of_a_program_that_is_killed() -> None:
    need_java()
    program = (
        "import sys\n"
        "from turnwise_adapters.scienceworld.servers import Servers\n"
        "servers = Servers(1, 60.0)\n"
        "with servers.use(None) as server:\n"
        "    print(server.pid, flush=True)\n"
        "sys.stdin.read()\n"
    )
    run = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert run.stdout is not None
    pid = int(run.stdout.readline())
    assert is_running(pid)
    run.kill()
    run.communicate(timeout=20)
    deadline = time.monotonic() + 20
    while is_running(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_running(pid)


def test_a_missing_java_is_refused_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    need("scienceworld", "worlds")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(
        ConfigError, match="needs the program java, which is missing; install it with: apt-get install def"
    ):
        load_family(FAMILY, {"tasks": TASKS})


def test_what_cannot_be_played_is_one_line() -> None:
    need_java()
    for arguments, message in (
        ({"tasks": {"fly": 1.0}}, "tasks has 'fly'; use some of boil"),
        ({"tasks": TASKS, "simplifications": ["hard"]}, "simplifications has 'hard'; use some of easy"),
        ({"tasks": TASKS, "simplifications": ["easy", "openContainers"]}, "takes 'easy' alone"),
        (
            {"tasks": {"test-conductivity": 1.0}, "simplifications": ["noElectricalAction"]},
            "task 'test-conductivity' needs electrical actions",
        ),
        ({"tasks": {"boil": 0.0}}, "a weight that is not above 0"),
        ({"tasks": {}}, "tasks"),
    ):
        with pytest.raises(ConfigError, match=message):
            load_family(FAMILY, arguments)
