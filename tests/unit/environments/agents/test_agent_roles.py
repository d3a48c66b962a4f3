"""A planner and workers whose calls are open at the same time, with a trajectory, a reward and a policy per role."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import httpx
import pytest

from turnwise.algorithms.credit_table import build_credit
from turnwise.audit.recheck import check_rendering
from turnwise.audit.stored_turns import check_endings, check_turns
from turnwise.core.episodes import AGENT, ASIDE, LiveEnvironment
from turnwise.core.errors import ConfigError
from turnwise.core.messages import ToolCall, reply_message
from turnwise.core.protocols import Opening
from turnwise.core.types import Draw, Episode, IntArray, Invalid, Scored, Task, Trajectory
from turnwise.credit.assignment import compute_advantages, to_credit_trajectories
from turnwise.engines.scripted import ScriptedEngine
from turnwise.environments.agents.environment import AgentEnvironment
from turnwise.environments.agents.family import AgentTasks
from turnwise.rollout.attempt import Attempt, Sampling
from turnwise.rollout.demonstrate import play_demonstration
from turnwise.rollout.limits import Limits
from turnwise.rollout.live import Endpoints, run_live_episode
from turnwise.rollout.policies import EnginePolicy, RolePolicy, ScriptedRole
from turnwise.testing import build_tiny_renderer, build_tiny_tokenizer, make_group
from turnwise.testing.errands import ErrandsFamily, describe_found, read_words

FAMILY = ErrandsFamily(linked=1.0)
TASK = next(task for k in range(9) if len((task := FAMILY.task("train", k)).payload["wanted"]) == 2)
TOKENIZER = build_tiny_tokenizer(FAMILY.texts(400))
RENDERER = build_tiny_renderer(TOKENIZER)
SEARCH = {"type": "function", "function": {"name": "search", "parameters": {"type": "object", "properties": {}}}}
ROLES = ("planner", "worker")
LIMITS = Limits(max_turns=4, max_turn_tokens=20, max_tokens=200, timeout_s=120.0)


def speak(prompt: IntArray) -> Any:
    """The oracle of both roles, by what the prompt says."""
    words = TOKENIZER.decode(list(prompt)).replace("</information>", "").split()
    if words[0] == "start":
        if words[-2] == "code":
            return f"<answer> {words[-1]} </answer>"
        call = ToolCall(id="call_0", name="search", arguments=f'{{"query": "{words[-1]}"}}')
        return reply_message("", tool_calls=(call,))
    return f"<answer> {' '.join(words[-2:])} </answer>"


class Together:
    """An engine that answers a worker's first request when the other worker has asked too."""

    def __init__(self, speaks: Any = speak) -> None:
        self.engine, self.num_replies, self.num_started = ScriptedEngine(RENDERER, speaks), 0, 0
        self.both = asyncio.Event()

    async def generate(self, prompt: IntArray, params: Any, *, session: Any) -> Any:
        self.num_replies += 1
        words = TOKENIZER.decode(list(prompt)).split()
        if words[0] == "start" and len(words) == 2:
            self.num_started += 1
            if self.num_started == 2:
                self.both.set()
            await self.both.wait()
        return await self.engine.generate(prompt, params, session=session)

    async def release(self, session: Any) -> None:
        await self.engine.release(session)


async def ask(client: httpx.AsyncClient, messages: list[Any], model: str, tools: list[Any]) -> Any:
    answer = await client.post("/chat/completions", json={"model": model, "messages": messages, "tools": tools})
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"][0]["message"]


async def send_worker(client: httpx.AsyncClient, task: Task, name: str) -> str:
    messages: list[Any] = [{"role": "user", "content": f"start {name}"}]
    while True:
        said = await ask(client, messages, "policy/worker", [SEARCH])
        messages.append({key: value for key, value in said.items() if key != "reasoning_content"})
        if not said.get("tool_calls"):
            return read_words(said["content"])[0]
        [call] = said["tool_calls"]
        query = httpx.Response(200, content=call["function"]["arguments"]).json()["query"]
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": task.payload["notes"][query]})


async def run_team(task: Task, base_url: str, api_key: str) -> Mapping[str, float]:
    """An agent: a planner, two workers at once, and something beside the task."""
    headers = {"authorization": f"Bearer {api_key}"}
    async with httpx.AsyncClient(base_url=base_url, headers=headers, timeout=120) as client:
        await ask(client, [{"role": "user", "content": "read amber jade"}], "policy/title", [])
        plan: list[Any] = [{"role": "user", "content": task.prompt[0].text}]
        plan.append(await ask(client, plan, "policy/planner", []))
        names = read_words(plan[-1]["content"])
        found = await asyncio.gather(*(send_worker(client, task, name) for name in names))
        plan.append({"role": "user", "content": describe_found(found)})
        last = await ask(client, plan, "policy/planner", [])
    right = read_words(last["content"]) == task.payload["answer"].split()
    return {"planner": float(right), "worker": 0.5}


def play(
    agent: Any,
    *,
    engines: Mapping[str, Any] | None = None,
    policies: Mapping[str, RolePolicy] | None = None,
    **args: Any,
) -> Episode:
    async def run() -> Episode:
        together = Together()
        environment = AgentEnvironment(FAMILY.build_environment(TASK), agent, **args)
        assert isinstance(environment, LiveEnvironment)
        names = [role.name for role in environment.spec.roles]
        speakers: dict[str, RolePolicy] = {
            name: EnginePolicy(engine=(engines or {}).get(name, together), renderer=RENDERER, learns=name != ASIDE)
            for name in names
        }
        endpoints = Endpoints(lambda ids: str(TOKENIZER.decode(list(ids))))
        attempt, sampling = Attempt(draw=Draw(index=3, task=TASK), member=1), Sampling(temperature=1.0, seed=7)
        try:
            return await run_live_episode(
                attempt, environment, speakers | dict(policies or {}), LIMITS, sampling, endpoints
            )
        finally:
            await endpoints.close()

    return asyncio.run(run())


def check(trajectory: Trajectory) -> None:
    """What an audit asks of a stored trajectory."""
    assert check_turns(0, trajectory, has_others=True) == []
    assert check_endings(0, trajectory) == []
    opening = Opening(messages=trajectory.conversations[0].messages, tools=trajectory.conversations[0].tools)
    assert check_rendering(trajectory, opening, RENDERER) == []


def test_each_role_has_a_trajectory_and_a_reward() -> None:
    trajectories = {t.id.role: t for t in play(run_team, roles=ROLES).trajectories}
    assert list(trajectories) == ["planner", "worker", "aside"]
    assert [t.learns for t in trajectories.values()] == [True, True, False]
    planner, worker, aside = trajectories.values()
    for trajectory in trajectories.values():
        check(trajectory)
    assert [each.name for each in planner.conversations] == ["planner"]
    assert [each.name for each in worker.conversations] == ["worker", "worker.1"]
    assert [each.name for each in aside.conversations] == ["title"]
    # A worker reads a note that names another one, and the other one: three replies. Both first ones were open at once.
    assert [len(t.turns) for t in trajectories.values()] == [2, 6, 1]
    assert {each.messages[0].text for each in worker.conversations} == {
        f"start {name}" for name in TASK.payload["wanted"]
    }
    assert (planner.reward, worker.reward) == (Scored(total=1.0), Scored(total=0.5))


def test_each_role_is_compared_with_itself() -> None:
    planner, worker, _ = play(run_team, roles=ROLES).trajectories
    others = [replace(t, id=replace(t.id, member=2), reward=Scored(total=0.25)) for t in (planner, worker)]
    groups = [make_group(planner, worker, *others)]
    advantages = compute_advantages(build_credit("rloo"), groups, to_credit_trajectories(groups))
    values = {
        name.role: {v for turn in turns for v in turn.tolist()}
        for name, turns in advantages.items()
        if name.member == 1
    }
    assert values == {"planner": {1.0 - 0.25}, "worker": {0.5 - 0.25}}


def test_one_reward_credits_every_role_without_roles() -> None:
    def score(task: Task, outcome: Mapping[str, float]) -> float:
        return outcome["planner"]

    [agent] = play(run_team, train_roots="all", score=score).trajectories
    assert sorted(each.name for each in agent.conversations) == ["planner", "title", "worker", "worker.3"]
    assert (len(agent.turns), agent.reward) == (9, Scored(total=1.0))
    check(agent)


def test_each_role_is_answered_by_its_own_policy() -> None:
    async def find_nothing(task: Task, base_url: str, api_key: str) -> float:
        await run_team(task, base_url, api_key)
        return 1.0

    planner = Together(lambda prompt: f"<answer> {' '.join(TASK.payload['wanted'])} </answer>")
    planner_, worker, aside = play(find_nothing, roles=ROLES, engines={"planner": planner}).trajectories
    assert planner.num_replies == len(planner_.turns) == 2
    assert (len(worker.turns), len(aside.turns)) == (6, 1)
    assert worker.reward == Scored(total=1.0)
    scripted = ScriptedRole(policy=FAMILY.policy("oracle"), renderer=RENDERER)
    with pytest.raises(Exception, match="needs an engine for the role 'worker', not ScriptedRole"):
        play(find_nothing, roles=ROLES, policies={"worker": scripted})


@pytest.mark.parametrize(
    ("outcome", "problem"),
    [
        ({"planner": 1.0}, "return a number, or a dict of planner, worker"),
        ({"planner": 1.0, "worker": 1.0, "title": 1.0}, "return a number, or a dict of planner, worker"),
        ({"planner": 1.0, "worker": "good"}, "the agent's outcome for worker is 'good'"),
        ("done", "Errand cannot judge it, since it asks in several conversations"),
    ],
)
def test_an_outcome_that_does_not_reward_every_role_is_invalid(outcome: Any, problem: str) -> None:
    async def agent(task: Task, base_url: str, api_key: str) -> Any:
        await run_team(task, base_url, api_key)
        return outcome

    reward = play(agent, roles=ROLES).trajectories[0].reward
    assert isinstance(reward, Invalid)
    assert problem in reward.reason


@pytest.mark.parametrize("roles", [(), ROLES, ("solver", "worker")])
def test_demonstrations_speak_for_the_roles(roles: tuple[str, ...]) -> None:
    environment = AgentEnvironment(FAMILY.build_environment(TASK), run_team, roles=roles)
    episode = asyncio.run(
        play_demonstration(
            Draw(index=0, task=TASK), FAMILY.policy("oracle"), environment, RENDERER, seed=0, max_turns=4
        )
    )
    counts = {t.id.role: len(t.turns) for t in episode.trajectories}
    first, *others = roles or (AGENT,)
    assert counts == {first: 2, **dict.fromkeys(others, 6), ASIDE: 0} | ({} if others else {AGENT: 8})
    assert {t.reward.total for t in episode.trajectories if isinstance(t.reward, Scored)} == {1.0}


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"roles": ["planner", "planner"]}, "roles has 'planner'; name each role once"),
        ({"roles": ["aside"]}, "none agent or aside"),
        ({"roles": ["a.b"]}, "by letters, digits, hyphens and underscores"),
        ({"roles": ["planner"], "train_roots": "first"}, "'first' has no effect with roles"),
    ],
)
def test_roles_that_cannot_be_told_apart_are_refused(arguments: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        AgentTasks(agent=f"{__name__}:run_team", family="turnwise.testing.errands:ErrandsFamily", **arguments)


def test_what_a_program_plays_already_is_no_family_of_tasks() -> None:
    environment = AgentEnvironment(FAMILY.build_environment(TASK), run_team)
    with pytest.raises(ConfigError, match="AgentEnvironment is played by a program already"):
        AgentEnvironment(environment, run_team)
