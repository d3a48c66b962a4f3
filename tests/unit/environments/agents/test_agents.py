"""Tasks of a family, played by an agent at an endpoint: its trajectories are those of any rollout."""

import asyncio
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import httpx
import pytest

from turnwise.algorithms.credit import compute_turn_rewards
from turnwise.algorithms.credit_table import build_credit
from turnwise.audit.accounts import check_account
from turnwise.audit.recheck import check_rendering
from turnwise.audit.replay import recheck_episode
from turnwise.audit.stored_turns import check_endings, check_turns
from turnwise.batching.samples import take_scored, to_samples
from turnwise.core.batch import Drop
from turnwise.core.episodes import LiveEnvironment, RequestRule
from turnwise.core.errors import ConfigError, EnvironmentFault
from turnwise.core.messages import ToolCall, reply_message
from turnwise.core.protocols import Opening
from turnwise.core.types import (
    ConversationOpening,
    Draw,
    DropReason,
    Episode,
    IntArray,
    Invalid,
    Scored,
    StopReason,
    Task,
    Trajectory,
    TurnScores,
)
from turnwise.credit.assignment import compute_advantages, to_credit_trajectories
from turnwise.engines.scripted import ScriptedEngine
from turnwise.environments.agents.environment import AgentEnvironment
from turnwise.environments.agents.family import AgentTasks
from turnwise.learning.drops import list_drops
from turnwise.rollout.attempt import Attempt, Sampling
from turnwise.rollout.limits import Limits
from turnwise.rollout.live import Endpoints, run_live_episode
from turnwise.rollout.policies import EnginePolicy
from turnwise.rollout.workers import FailurePolicy, RolloutWorker
from turnwise.runs.agents import find_agent, play_by
from turnwise.store.ledger import account_batch
from turnwise.testing import NotesFamily, build_tiny_renderer, build_tiny_tokenizer, make_group
from turnwise.testing.notes import Notes

FAMILY = NotesFamily()
TOKENIZER = build_tiny_tokenizer(FAMILY.texts(400))
RENDERER = build_tiny_renderer(TOKENIZER)
SEARCH = {"type": "function", "function": {"name": "search", "parameters": {"type": "object", "properties": {}}}}
LINKED = next(task for k in range(9) if (task := FAMILY.task("train", k)).payload["kind"] == "linked")


def follow(prompt: IntArray) -> Any:
    """The oracle, by what the prompt ends with."""
    words = TOKENIZER.decode(list(prompt)).replace("</information>", "").split()
    if words[-2:-1] == ["code"]:
        return f"<answer> {words[-1]} </answer>"
    call = ToolCall(id="call_0", name="search", arguments=f'{{"query": "{words[-1]}"}}')
    return reply_message("", tool_calls=(call,))


async def ask(client: httpx.AsyncClient, messages: list[Any], **fields: Any) -> Any:
    body = {"model": "policy", "messages": messages, "tools": [SEARCH], **fields}
    answer = await client.post("/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"][0]["message"]


def connect(base_url: str, api_key: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=base_url, headers={"authorization": f"Bearer {api_key}"}, timeout=120)


async def read_notes(task: Task, base_url: str, api_key: str) -> None:
    """An agent: a loop over tool calls."""
    messages: list[Any] = [{"role": "user", "content": task.prompt[0].text}]
    async with connect(base_url, api_key) as client:
        for _ in range(4):
            message = await ask(client, messages)
            messages.append({k: v for k, v in message.items() if k != "reasoning_content"})
            if not message.get("tool_calls"):
                return
            for call in message["tool_calls"]:
                note = task.payload["notes"].get(eval_query(call), "nothing")
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": note})


def eval_query(call: Any) -> str:
    return str(httpx.Response(200, content=call["function"]["arguments"]).json()["query"])


def play(agent: Any, *, limits: Any = None, wrap: Any = None, **options: Any) -> Episode:
    async def run() -> Episode:
        scripted = ScriptedEngine(RENDERER, follow)
        engine = wrap(scripted) if wrap else scripted
        endpoints = Endpoints(lambda ids: str(TOKENIZER.decode(list(ids))))
        environment = AgentEnvironment(FAMILY.build_environment(LINKED), agent, **options)
        assert isinstance(environment, LiveEnvironment)
        given = {"max_turns": 4, "max_turn_tokens": 20, "max_tokens": 200, "timeout_s": 120.0} | (limits or {})
        try:
            return await run_live_episode(
                Attempt(draw=Draw(index=3, task=LINKED), member=1),
                environment,
                {
                    "agent": EnginePolicy(engine=engine, renderer=RENDERER),
                    "aside": EnginePolicy(engine=engine, renderer=RENDERER, learns=False),
                },
                Limits(**given),
                Sampling(temperature=1.0, seed=7),
                endpoints,
            )
        finally:
            await endpoints.close()

    return asyncio.run(run())


def check(trajectory: Trajectory) -> None:
    """What an audit asks of a stored trajectory."""
    assert check_turns(0, trajectory, has_others=True) == []
    assert check_endings(0, trajectory) == []
    opening = Opening(messages=LINKED.prompt, tools=())
    if trajectory.conversations:
        opening = Opening(messages=trajectory.conversations[0].messages, tools=trajectory.conversations[0].tools)
    assert check_rendering(trajectory, opening, RENDERER) == []


def test_an_agents_loop_is_one_conversation() -> None:
    agent, aside = play(read_notes).trajectories
    assert agent.reward == Scored.of(1.0, {"success": 1.0})
    assert [turn.parent for turn in agent.turns] == [None, 0, 1]
    assert [turn.message.tool_calls != () for turn in agent.turns] == [True, True, False]
    assert [message.text for turn in agent.turns for message in turn.observations] == list(
        LINKED.payload["notes"].values()
    )
    assert [record.observation for turn in agent.turns for record in turn.tool_records] == [
        message.text for turn in agent.turns for message in turn.observations
    ]
    assert [turn.signals[0].value for turn in agent.turns] == [0.0, 1.0, 1.0]  # gateway_continued
    assert all(turn.environment_s > 0 for turn in agent.turns[:-1])
    assert (agent.stop, agent.learns, aside.learns, aside.turns) == (StopReason.DONE, True, False, ())
    check(agent)
    again, _ = play(read_notes).trajectories
    assert [t.completion.token_ids.tolist() for t in again.turns] == [
        t.completion.token_ids.tolist() for t in agent.turns
    ]


async def with_a_title(task: Task, base_url: str, api_key: str) -> float:
    """Asks for a title first, reads its notes, and asks the same twice at the end."""
    async with connect(base_url, api_key) as client:
        await ask(client, [{"role": "user", "content": "title for amber"}], tools=[])
        first = [{"role": "user", "content": task.prompt[0].text}]
        message = await ask(client, first)
        call = message["tool_calls"][0]["id"]
        more = [*first, message, {"role": "tool", "tool_call_id": call, "content": "see jade"}]
        await asyncio.gather(ask(client, more), ask(client, more))
        await ask(client, [*first, {"role": "assistant", "content": "Well."}, {"role": "user", "content": "code 3"}])
    return 0.5


def test_branches_and_asides_keep_every_token() -> None:
    agent, aside = play(with_a_title).trajectories
    assert agent.reward == aside.reward == Scored(total=0.5)
    assert [turn.parent for turn in agent.turns] == [None, 0, 0, None]
    assert [(each.name, each.caller, each.inherits) for each in agent.conversations] == [
        ("main", None, False),
        ("branch1", "main", True),
        ("branch2", None, False),
    ]
    assert [len(trajectory.turns) for trajectory in (agent, aside)] == [4, 1]
    check(agent)
    check(aside)
    [whole] = play(with_a_title, train_roots="all").trajectories
    assert len(whole.turns) == 5
    check(whole)
    first, _ = play(with_a_title, train_roots="first").trajectories
    assert len(first.turns) == 1


def test_a_function_chooses_what_trains() -> None:
    asked = []

    def without_titles(roots: Sequence[ConversationOpening]) -> list[bool]:
        asked.append(len(roots))
        return [bool(root.tools) for root in roots]

    agent, aside = play(with_a_title, train_roots=without_titles).trajectories
    assert [len(agent.turns), len(aside.turns)] == [4, 1]
    assert asked == [3]  # once, of main, branch2 and the title: it may draw, or count
    none, everything = play(with_a_title, train_roots=lambda roots: [False] * len(roots)).trajectories
    assert [len(none.turns), len(everything.turns)] == [0, 5]


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        (lambda roots: [True], "return a bool for each"),
        (lambda roots: [1] * len(roots), "return a bool for each"),
        (lambda roots: None, "train_roots returned None"),
        (lambda roots: roots[9], "the rule of the conversations that train"),
    ],
)
def test_a_function_that_chooses_wrongly_makes_the_attempt_invalid(rule: Any, problem: str) -> None:
    agent, aside = play(with_a_title, train_roots=rule).trajectories
    assert isinstance(agent.reward, Invalid)
    assert problem in agent.reward.reason
    assert [len(agent.turns), len(aside.turns)] == [5, 0]  # no token is lost


def test_a_rule_that_is_none_is_named() -> None:
    with pytest.raises(ConfigError, match=r"train_roots='tool': use tools, first, all, or 'package.module:function'"):
        AgentTasks(family="turnwise.testing.notes:NotesFamily", command=["true"], train_roots="tool")


async def plan_and_work(task: Task, base_url: str, api_key: str) -> float:
    """A planner without tools and a worker with a tool, whose calls interleave."""
    async with connect(base_url, api_key) as client:
        plan = [{"role": "system", "content": "plan"}, {"role": "user", "content": task.prompt[0].text}]
        work = [{"role": "system", "content": "work"}, {"role": "user", "content": task.prompt[0].text}]
        for note in ("see jade", "code 3"):
            planned = await ask(client, plan, model="policy/planner", tools=[])
            plan += [planned, {"role": "user", "content": note}]
            worked = await ask(client, work, model="policy/worker")
            call = worked["tool_calls"][0]["id"]
            work += [worked, {"role": "tool", "tool_call_id": call, "content": note}]
        await ask(client, work, model="policy/worker")
    return 0.75


def test_a_planner_and_a_worker_train_with_shared_credit() -> None:
    [agent] = play(plan_and_work, train_roots="all").trajectories
    assert [(each.name, each.messages[0].text, each.caller) for each in agent.conversations] == [
        ("planner", "plan", None),
        ("worker", "work", None),
    ]
    names = [agent.conversations[turn.conversation].name for turn in agent.turns]
    assert names == ["planner", "worker", "planner", "worker", "worker"]
    assert [turn.parent for turn in agent.turns] == [None, None, 0, 1, 3]
    check(agent)
    # One outcome credits the turns of both: against a member with 0.25, RLOO gives 0.75 - 0.25 = 0.5 to every token.
    other = replace(agent, id=replace(agent.id, member=2), reward=Scored(total=0.25))
    groups = [make_group(agent, other)]
    advantages = compute_advantages(build_credit("rloo"), groups, to_credit_trajectories(groups))
    assert {value for turn in advantages[agent.id] for value in turn.tolist()} == {0.5}
    samples = to_samples(agent, advantages[agent.id])
    trained = [int(sample.loss_mask.sum()) for sample in samples]
    lengths = [len(turn.completion.token_ids) for turn in agent.turns]
    assert trained == [lengths[0] + lengths[2], lengths[1] + lengths[3] + lengths[4]]

    worker, planner = play(plan_and_work).trajectories  # those that offered tools train
    assert [each.name for each in worker.conversations] == ["worker"]
    assert ([each.name for each in planner.conversations], planner.learns) == (["planner"], False)
    assert (len(worker.turns), len(planner.turns)) == (3, 2)


def test_an_audit_that_may_run_tools_runs_no_program() -> None:
    episode = play(read_notes)
    environment = AgentEnvironment(FAMILY.build_environment(LINKED), read_notes)
    outcomes = asyncio.run(
        recheck_episode(
            episode.trajectories,
            LINKED,
            environment=environment,
            renderer=RENDERER,
            seed=0,
            run_tools=True,
            timeout_s=60.0,
        )
    )
    for outcome in outcomes.values():
        assert outcome.breaches == []
        assert outcome.not_checked == [("rewards", "rewards of AgentEnvironment, whose program cannot be replayed")]


async def leave(task: Task, base_url: str, api_key: str) -> float:
    """Ask for something beside its task, and hang up before the answer comes."""
    async with connect(base_url, api_key) as client:
        await ask(client, [{"role": "user", "content": task.prompt[0].text}])
        body = {"model": "policy", "messages": [{"role": "user", "content": "start jade"}], "tools": [SEARCH]}
        reader, writer = await asyncio.open_connection("127.0.0.1", httpx.URL(base_url).port)
        content = httpx.Request("POST", base_url, json=body).content
        head = f"POST {httpx.URL(base_url).path}/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\n"
        head += f"authorization: Bearer {api_key}\r\ncontent-length: {len(content)}\r\n\r\n"
        writer.write(head.encode() + content[:-1])
        await writer.drain()
        writer.close()
        del reader
    return 1.0


def test_a_request_that_was_never_whole_is_no_reply() -> None:
    agent, aside = play(leave).trajectories
    assert (len(agent.turns), len(aside.turns)) == (1, 0)


class Gate:
    """An engine that answers about jade when it is told to."""

    def __init__(self, engine: ScriptedEngine) -> None:
        GATES.append(self)
        self.engine, self.is_asked, self.may_answer = engine, asyncio.Event(), asyncio.Event()

    async def generate(self, prompt: IntArray, params: Any, *, session: Any) -> Any:
        if "jade" in TOKENIZER.decode(list(prompt)):
            self.is_asked.set()
            await self.may_answer.wait()
        return await self.engine.generate(prompt, params, session=session)

    async def release(self, session: Any) -> None:
        await self.engine.release(session)


GATES: list[Gate] = []


async def hang_up(base_url: str, api_key: str, messages: list[Any]) -> None:
    """Send a request about jade, and leave while it is being sampled."""
    gate = GATES[-1]
    body = {"model": "policy", "messages": messages, "tools": [SEARCH]}
    _, writer = await asyncio.open_connection("127.0.0.1", httpx.URL(base_url).port)
    content = httpx.Request("POST", base_url, json=body).content
    head = f"POST {httpx.URL(base_url).path}/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\n"
    head += f"authorization: Bearer {api_key}\r\ncontent-length: {len(content)}\r\n\r\n"
    writer.write(head.encode() + content)
    await gate.is_asked.wait()
    writer.close()
    await writer.wait_closed()


async def give_up(task: Task, base_url: str, api_key: str) -> float:
    """Give up a continuation and a conversation of its own; then go on in other words."""
    async with connect(base_url, api_key) as client:
        first = [{"role": "user", "content": task.prompt[0].text}]
        message = await ask(client, first)
        call = message["tool_calls"][0]["id"]
        await hang_up(
            base_url, api_key, [*first, message, {"role": "tool", "tool_call_id": call, "content": "see jade"}]
        )
        await hang_up(base_url, api_key, [{"role": "user", "content": "start jade"}])
        await ask(client, [{"role": "user", "content": "start coral"}])  # those who left are noticed meanwhile
        GATES[-1].may_answer.set()
        await ask(client, [*first, message, {"role": "tool", "tool_call_id": call, "content": "code 3"}])
    return 1.0


def test_replies_that_nobody_received_do_not_train() -> None:
    episode = play(give_up, wrap=Gate)
    agent, aside = episode.trajectories
    # Received: the first reply, the one about coral, and the one about the code. Of jade two were sampled for nobody.
    assert [turn.is_received for turn in agent.turns] == [True, True, True, False, False]
    assert [turn.parent for turn in agent.turns] == [None, None, 0, 0, None]
    assert (aside.turns, agent.stop, agent.reward) == ((), StopReason.DONE, Scored(total=1.0))
    check(agent)
    group = make_group(agent)
    lost = Drop(trajectory=agent.id, reason=DropReason.UNDELIVERED, turns=(3, 4))
    assert list_drops([group], {agent.id}, DropReason.NO_CREDIT) == [lost]
    [kept] = take_scored([group]).values()
    assert len(kept.turns) == 3
    [account] = account_batch([group], [to_samples(kept)], [lost], step=1, version=0, max_staleness=0)
    counts = [len(turn.completion.token_ids) for turn in agent.turns]
    assert (account.trained, account.dropped) == (sum(counts[:3]), {"undelivered": sum(counts[3:])})
    assert check_account(account, group, None, max_staleness=0) == []
    changed = replace(agent, turns=(*agent.turns[:4], replace(agent.turns[4], is_received=True)))
    texts = [breach.text for breach in check_account(account, make_group(changed), None, max_staleness=0)]
    assert texts == [f"0 of its stored tokens were received by nobody, the ledger has {sum(counts[3:])} dropped for it"]
    [breach] = check_endings(0, changed)
    assert breach.text == "turn 3 was received by nobody, yet turn 4 comes after it and was"
    [whole] = play(give_up, wrap=Gate, train_roots="all").trajectories
    assert [turn.is_received for turn in whole.turns] == [True, True, True, False, False]


async def fail(task: Task, base_url: str, api_key: str) -> None:
    async with connect(base_url, api_key) as client:
        await ask(client, [{"role": "user", "content": task.prompt[0].text}])
    raise KeyError("jade")


def test_what_a_raising_agent_means_is_chosen() -> None:
    episode = play(fail)
    reward = episode.trajectories[0].reward
    assert isinstance(reward, Invalid)
    assert reward.retryable
    assert "the agent: KeyError: 'jade'" in reward.reason
    assert len(episode.trajectories[0].turns) == 1
    scored = play(fail, on_error="score", score=lambda task, outcome: 0.25 * isinstance(outcome, KeyError))
    assert scored.trajectories[0].reward == Scored(total=0.25)
    judged = play(fail, on_error="score")  # by its replies up to there: a search and no answer
    assert judged.trajectories[0].reward == Scored.of(0.0, {"success": 0.0})


async def hang(task: Task, base_url: str, api_key: str) -> None:
    await asyncio.Event().wait()


def test_an_agent_has_the_trajectorys_deadline() -> None:
    reward = play(hang, limits={"timeout_s": 0.05}).trajectories[0].reward
    assert isinstance(reward, Invalid)
    assert "trajectory_timeout_s" in reward.reason


async def ask_once(task: Task, base_url: str, api_key: str) -> str:
    async with connect(base_url, api_key) as client:
        await ask(client, [{"role": "user", "content": task.prompt[0].text}])
    return "done"


async def post_reward(task: Task, base_url: str, api_key: str) -> None:
    await ask_once(task, base_url, api_key)
    async with connect(base_url.removesuffix("/v1"), api_key) as client:
        assert (await client.post("/reward", json={"reward": 0.75})).status_code == 200


async def reward_replies(task: Task, base_url: str, api_key: str) -> float:
    """Rewards its first reply by a call's id, and its second by the reply's, twice."""
    async with connect(base_url, api_key) as client:
        first = [{"role": "user", "content": task.prompt[0].text}]
        message = await ask(client, first)
        call = message["tool_calls"][0]["id"]
        more = [*first, message, {"role": "tool", "tool_call_id": call, "content": "code 3"}]
        answer = await client.post("/chat/completions", json={"model": "policy", "messages": more, "tools": [SEARCH]})
        for reply, reward in ((call, 0.25), (answer.json()["id"], 9.0), (answer.json()["id"], -0.5)):
            await client.post(base_url.removesuffix("/v1") + "/reward", json={"reward": reward, "reply": reply})
    return 1.0


def test_rewards_of_replies_are_the_rewards_of_their_turns() -> None:
    agent, _ = play(reward_replies).trajectories
    assert [turn.scores for turn in agent.turns] == [TurnScores(reward=0.25), TurnScores(reward=-0.5)]
    assert agent.reward == Scored(total=1.0)
    [credited] = to_credit_trajectories([make_group(agent)])
    assert compute_turn_rewards(credited).tolist() == [0.25, 0.5]  # -0.5, and the outcome 1.0 after the last turn


async def ask_by_name(task: Task, base_url: str, api_key: str) -> float:
    """An agent that has its model's name in it, and a role's for a part of it."""
    async with connect(base_url, api_key) as client:
        [listed] = (await client.get("/models")).json()["data"]
        assert listed["id"] == "acme/large-4"
        for model in ("acme/large-4", "acme/large-4/planner"):
            await ask(client, [{"role": "user", "content": task.prompt[0].text}], model=model)
        for model in ("policy", "acme", "acme/large-4/", "acme/large-4/a.b", "acme/large-40"):
            body = {"model": model, "messages": [{"role": "user", "content": "start jade"}]}
            refused = (await client.post("/chat/completions", json=body)).json()["error"]
            assert (refused["code"], refused["param"]) == ("model_not_found", "model"), model
    return 1.0


def test_an_agent_may_ask_for_its_own_models_name() -> None:
    [agent] = play(ask_by_name, train_roots="all", requests=RequestRule(model="acme/large-4")).trajectories
    assert agent.reward == Scored(total=1.0)
    assert [each.name for each in agent.conversations] == ["main", "planner"]


async def say_nothing_and_fail(task: Task, base_url: str, api_key: str) -> None:
    raise KeyError("jade")


async def say_nothing(task: Task, base_url: str, api_key: str) -> str:
    return "done"


@pytest.mark.parametrize(
    ("agent", "options", "expected"),
    [
        (post_reward, {}, 0.75),
        (post_reward, {"score": lambda task, outcome: 2}, 2.0),
        (ask_once, {"score": lambda task, outcome: Scored(total=float(outcome == "done"))}, 1.0),
        (lambda *given: 0.5 * (asyncio.run(ask_once(*given)) == "done"), {}, 0.5),  # a plain function
    ],
)
def test_rewards_come_from_the_score_function_a_post_or_the_outcome(
    agent: Callable[..., Any], options: Any, expected: float
) -> None:
    assert play(agent, **options).trajectories[0].reward == Scored(total=expected)


def test_an_outcome_that_is_no_reward_is_invalid() -> None:
    reward = play(ask_once, score=lambda task, outcome: outcome).trajectories[0].reward
    assert isinstance(reward, Invalid)
    assert "return a finite number or a reward" in reward.reason


def test_an_agent_that_asks_for_nothing_tells_nothing_of_the_policy() -> None:
    reward = play(say_nothing, score=lambda task, outcome: 1.0).trajectories[0].reward
    assert isinstance(reward, Invalid)
    assert "received no reply; it must ask the endpoint that it is given" in reward.reason
    failed = play(say_nothing_and_fail, on_error="score", score=lambda task, outcome: 0.25).trajectories[0].reward
    assert failed == Scored(total=0.25)  # its failure is an outcome


async def forget(task: Task, base_url: str, api_key: str) -> float:
    """Go on from its own words for a reply, whatever the gateway says."""
    async with connect(base_url, api_key) as client:
        first = [{"role": "user", "content": task.prompt[0].text}]
        await ask(client, first)
        more = [*first, {"role": "assistant", "content": "I asked."}, *first]
        await client.post("/chat/completions", json={"model": "policy", "messages": more, "tools": [SEARCH]})
    return 1.0


def test_an_attempt_that_rewrites_is_invalid_where_that_is_refused() -> None:
    agent, _ = play(forget).trajectories
    assert (agent.reward, len(agent.turns)) == (Scored(total=1.0), 2)
    agent, _ = play(forget, requests=RequestRule(on_rewrite="refuse")).trajectories
    assert isinstance(agent.reward, Invalid)
    assert "rewrote its conversation: messages[1] is not the delivered reply: content" in agent.reward.reason
    arguments = {"family": "turnwise.testing.notes:NotesFamily", "agent": "os:getcwd", "model": "large"}
    spec = AgentTasks(**arguments, reasoning="follow", on_rewrite="refuse").build_environment(LINKED).spec
    assert spec.requests == RequestRule(reasoning="follow", on_rewrite="refuse", model="large")


PROGRAM = """
import json, os, sys, urllib.request
task = json.load(sys.stdin)
body = {"model": os.environ["TURNWISE_MODEL"], "messages": task["prompt"]}
headers = {"authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
request = urllib.request.Request(url, json.dumps(body).encode(), headers)
print(len(json.load(urllib.request.urlopen(request))["choices"]))
"""


def test_an_agent_may_be_a_command() -> None:
    right = play([sys.executable, "-c", PROGRAM], score=lambda task, outcome: float(outcome))
    assert right.trajectories[0].reward == Scored(total=1.0)
    assert len(right.trajectories[0].turns) == 1
    wrong = play([sys.executable, "-c", "raise SystemExit('no luck')"]).trajectories[0].reward
    assert isinstance(wrong, Invalid)
    assert "ended with status 1: no luck" in wrong.reason
    missing = play(["/nothing/there"]).trajectories[0].reward
    assert isinstance(missing, Invalid)
    assert "cannot be started" in missing.reason


def test_a_reply_that_a_limit_cut_ends_its_conversation() -> None:
    async def insist(task: Task, base_url: str, api_key: str) -> float:
        first = [{"role": "user", "content": task.prompt[0].text}]
        async with connect(base_url, api_key) as client:
            message = await ask(client, first, max_tokens=1)
            refused = await client.post(
                "/chat/completions",
                json={"model": "policy", "messages": [*first, message, *first], "tools": [SEARCH]},
            )
            assert refused.json()["error"]["code"] == "reply_cut"
        return 0.0

    agent = play(insist).trajectories[0]
    assert (agent.stop, len(agent.turns)) == (StopReason.MAX_TURN_TOKENS, 1)
    check(agent)


def test_the_family_plays_tasks_of_another() -> None:
    name = "turnwise.testing.notes:NotesFamily"
    family = AgentTasks(agent=f"{__name__}:read_notes", family=name, args={"linked": 1.0})
    task = family.task("heldout", 2)
    assert task == NotesFamily(linked=1.0).task("heldout", 2)
    assert isinstance(family.build_environment(task), LiveEnvironment)
    assert family.texts(3) == NotesFamily().texts(3)
    for arguments, problem in (
        ({"family": name}, "either agent or command"),
        ({"family": name, "agent": "a:b", "command": ["x"]}, "either agent or command"),
        ({"family": name, "agent": "nothing.there:f"}, "cannot be imported"),
        ({"family": name, "agent": f"{__name__}:PROGRAM"}, "is no function"),
        ({"family": "nothing", "command": ["x"]}, "neither a known name"),
    ):
        with pytest.raises(ConfigError, match=problem):
            AgentTasks(**arguments)  # type: ignore[arg-type]


def test_an_evaluation_may_be_played_by_an_agent() -> None:
    named = find_agent(f"{__name__}:read_notes", None)
    assert named is not None
    worker = RolloutWorker(
        build_environment=FAMILY.build_environment,
        engine=ScriptedEngine(RENDERER, follow),
        renderer=RENDERER,
        limits=Limits(max_turns=4, max_turn_tokens=20, max_tokens=200, timeout_s=120.0),
        sampling=Sampling(temperature=0.0, seed=7),
        failure=FailurePolicy(max_retries=0, max_invalid_share=0.0),
        max_open=4,
        scope="evaluate",
        endpoints=Endpoints(lambda ids: str(TOKENIZER.decode(list(ids)))),
    )
    draws = [Draw(index=index, task=FAMILY.task("heldout", index)) for index in range(3)]

    async def run() -> list[Any]:
        try:
            return await play_by(worker, named.agent).run_groups(draws, group_size=2)
        finally:
            assert worker.endpoints is not None
            await worker.endpoints.close()

    assert [group.rewards() for group in asyncio.run(run())] == [[1.0, 1.0]] * 3
    other = play_by(play_by(worker, say_nothing), read_notes).build_environment(draws[0].task)
    assert isinstance(other, AgentEnvironment)
    assert isinstance(other.base, Notes)
    alone = play_by(replace(worker, endpoints=None), named.agent)
    with pytest.raises(EnvironmentFault, match="needs endpoints"):
        asyncio.run(alone.run_groups(draws[:1], group_size=1))


def test_an_agent_is_named_once() -> None:
    assert find_agent(None, None) is None
    found = find_agent(None, "python 'my agent.py' --fast")
    assert found is not None
    assert found.agent == ["python", "my agent.py", "--fast"]
    for function, command, problem in (("a:b", "c", "give one of them"), (None, " ", "is empty")):
        with pytest.raises(ConfigError, match=problem):
            find_agent(function, command)
