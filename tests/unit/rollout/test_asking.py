"""Episodes of several conversations and roles: no token is lost or doubled, timing decides nothing, rules are kept."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from asking_worlds import RENDERER, ROLES, KeepingEngine, Talker, Wanderer, make_task
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pipeline_world import extend_hash, fingerprint, score_sample, score_token

from turnwise.algorithms.credit_table import CREDIT_METHODS, build_credit
from turnwise.audit.recheck import check_rendering
from turnwise.audit.stored_turns import check_endings, check_turns
from turnwise.batching.samples import to_samples
from turnwise.core.batch import Drop
from turnwise.core.episodes import Ask, Asked, AskingEnvironment, EpisodeEnd, EpisodeSpec, RoleSpec
from turnwise.core.protocols import Environment, Opening
from turnwise.core.roles import learns, split_roles
from turnwise.core.types import (
    Compare,
    Draw,
    DropReason,
    Episode,
    Invalid,
    Message,
    Reward,
    Scored,
    StopReason,
    Task,
    Trajectory,
    TrajectoryGroup,
    text_message,
)
from turnwise.credit.assignment import compute_advantages, to_credit_trajectories
from turnwise.rollout.attempt import Attempt, Sampling
from turnwise.rollout.limits import Limits
from turnwise.rollout.loop import run_episode
from turnwise.rollout.policies import EnginePolicy, RolePolicy, ScriptedRole
from turnwise.store.ledger import account_batch, account_dropped
from turnwise.store.trajectories import build_groups, encode_groups, parse_arrays, parse_rows

LIMITS = Limits(max_turns=6, max_turn_tokens=8, max_tokens=200, timeout_s=60.0)
SAMPLING = Sampling(temperature=1.0, seed=7)


def play(
    environment: Environment | AskingEnvironment,
    engine: KeepingEngine,
    *,
    scripted: Sequence[str] = (),
    limits: Limits = LIMITS,
    index: int = 0,
    member: int = 0,
    roles: Sequence[str] = ROLES,
) -> Episode:
    policies: dict[str, RolePolicy] = {role: EnginePolicy(engine=engine, renderer=RENDERER) for role in roles}
    policies |= {role: ScriptedRole(policy=Talker(), renderer=RENDERER) for role in scripted}
    attempt = Attempt(draw=Draw(index=index, task=make_task(index)), member=member)
    return asyncio.run(run_episode(attempt, environment, policies, limits, SAMPLING))


def list_tokens(episode: Episode) -> list[list[tuple[list[int], list[int], int | None, str]]]:
    """Context, completion, parent and conversation of every turn of every role."""
    return [
        [
            (turn.context_ids.tolist(), turn.completion.token_ids.tolist(), turn.parent, names[turn.conversation])
            for names in [[opening.name for opening in t.conversations]]
            for turn in t.turns
        ]
        for t in episode.trajectories
    ]


def test_two_roles_with_random_delays_say_the_same_in_any_timing() -> None:
    for index in range(6):
        first = play(Wanderer(), KeepingEngine(0), index=index)
        assert sum(len(t.turns) for t in first.trajectories) >= 8
        for delays in range(1, 4):
            other = play(Wanderer(delay_s=0.0003 * delays), KeepingEngine(delays), index=index)
            assert list_tokens(other) == list_tokens(first)
            assert [t.reward for t in other.trajectories] == [t.reward for t in first.trajectories]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    index=st.integers(0, 10_000),
    num_roles=st.integers(1, 3),
    scripted=st.sets(st.sampled_from(ROLES[1:])),
    breaks_at=st.none() | st.integers(1, 9),
    max_turns=st.integers(1, 4),
    max_turn_tokens=st.sampled_from([3, 4, 8]),
)
def test_random_episodes_neither_lose_nor_double_a_token(
    index: int, num_roles: int, scripted: set[str], breaks_at: int | None, max_turns: int, max_turn_tokens: int
) -> None:
    limits = Limits(max_turns=max_turns, max_turn_tokens=max_turn_tokens, max_tokens=60, timeout_s=60.0)
    engine, members = KeepingEngine(index, token_s=0.0), []
    for member in range(2):
        environment = Wanderer(num_roles=num_roles, breaks_at=breaks_at)
        members.append(play(environment, engine, scripted=sorted(scripted), limits=limits, index=index, member=member))
    trajectories = [t for episode in members for t in episode.trajectories]
    # Everything the engine delivered is in one turn of one role, and nothing else is.
    kept = [turn.completion for t in trajectories if t.learns for turn in t.turns]
    assert sorted(map(id, kept)) == sorted(map(id, engine.delivered))
    assert all(len({t.stop for t in episode.trajectories}) == 1 for episode in members)
    group = TrajectoryGroup(
        draw=members[0].draw,
        trajectories=tuple(sorted(trajectories, key=lambda t: t.id)),
        role="" if num_roles > 1 else ROLES[0],
    )
    # The store gives back what it was given.
    npz, jsonl = encode_groups([group], decode=None)
    source = Path("stored")
    [stored] = build_groups(parse_rows(jsonl, source=source), parse_arrays(npz, source=source), source=source)
    assert [t.id for t in stored.trajectories] == [t.id for t in group.trajectories]
    assert [t.conversations for t in stored.trajectories] == [t.conversations for t in group.trajectories]
    # The ledger balances, whoever learns.
    accounts = []
    for part in split_roles(stored):
        if not learns(part):
            accounts.append(account_dropped(part, DropReason.UNUSED, step=1, version=0))
            continue
        samples = [s for t in part.trajectories if isinstance(t.reward, Scored) for s in to_samples(t)]
        drops: list[Drop] = []
        accounts += account_batch(
            [part], [samples], drops, step=1, version=0, max_staleness=0, max_times=1, observations_train=False
        )
    sampled = sum(t.num_sampled_tokens for t in trajectories)
    assert sum(account.sampled for account in accounts) == sampled
    assert sum(account.trained + sum(account.dropped.values()) for account in accounts) == sampled
    not_learning = sum(t.num_sampled_tokens for t in trajectories if not t.learns and isinstance(t.reward, Scored))
    assert sum(account.dropped.get("not_learning", 0) for account in accounts) == not_learning


@cache
def played(compare: Compare, index: int, num_members: int) -> tuple[Episode, ...]:
    engine = KeepingEngine(0, token_s=0.0)
    return tuple(play(Wanderer(compare=compare), engine, index=index, member=m) for m in range(num_members))


def make_group(rewards: Mapping[str, Sequence[float]], compare: Compare = "task", index: int = 1) -> TrajectoryGroup:
    """Episodes of two roles, one for each of a role's rewards."""
    members = played(compare, index, len(rewards["first"]))
    trajectories = [
        replace(t, reward=Scored(total=rewards[t.id.role][m]), compare=compare)
        for m, episode in enumerate(members)
        for t in episode.trajectories
    ]
    return TrajectoryGroup(draw=members[0].draw, trajectories=tuple(trajectories), role="")


def credit(*groups: TrajectoryGroup, method: str = "dr_grpo") -> dict[tuple[int, int, str], float]:
    """The advantage of every trajectory's first token, by task, member and role; NaN where it trains nothing."""
    parts = [part for group in groups for part in split_roles(group)]
    advantages = compute_advantages(build_credit(method), parts, to_credit_trajectories(parts))
    return {(name.draw, name.member, name.role): float(turns[0][0]) for name, turns in advantages.items()}


COMPARING = [name for name, method in CREDIT_METHODS.items() if not (method.needs or method.annotators)]
"""Methods that need no scores beside the reward."""


@settings(max_examples=8, deadline=None)
@given(
    rewards=st.lists(st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=2, max_size=4), min_size=2, max_size=2),
    data=st.data(),
)
@pytest.mark.parametrize("method", COMPARING)
def test_permuting_the_rewards_of_one_role_moves_no_advantage_of_another(
    method: str, rewards: list[list[float]], data: st.DataObject
) -> None:
    """Within their groups, of two tasks with as many episodes each as there are rewards."""
    plain, permuted = (
        credit(
            *(
                make_group({"first": firsts, "second": seconds}, index=task + 1)
                for task, (firsts, seconds) in enumerate(zip(rewards, drawn, strict=True))
            ),
            method=method,
        )
        for drawn in (rewards, [data.draw(st.permutations(each)) for each in rewards])
    )
    of_first = [key for key in plain if key[2] == "first"]
    assert of_first == [key for key in permuted if key[2] == "first"]
    assert [permuted[key] for key in of_first] == pytest.approx([plain[key] for key in of_first], abs=1e-9, nan_ok=True)


def test_a_role_is_compared_with_itself_by_hand() -> None:
    advantages = credit(make_group({"first": [0.0, 1.0, 2.0], "second": [5.0, 0.0, 1.0]}))
    assert [advantages[1, m, "first"] for m in range(3)] == pytest.approx([-1.0, 0.0, 1.0])
    assert [advantages[1, m, "second"] for m in range(3)] == pytest.approx([3.0, -2.0, -1.0])


def test_whom_a_role_is_compared_with_is_what_the_environment_declares() -> None:
    rewards = {"first": [0.0, 1.0, 2.0], "second": [4.0, 1.0, 5.0]}
    by_task = credit(make_group(rewards, "task"))
    assert [by_task[1, m, "first"] for m in range(3)] == [-1.0, 0.0, 1.0]
    by_episode = credit(make_group(rewards, "episode"))
    assert [by_episode[1, m, "first"] for m in range(3)] == [-2.0, 0.0, -1.5]
    assert [by_episode[1, m, "second"] for m in range(3)] == [2.0, 0.0, 1.5]
    assert set(credit(make_group(rewards, "nobody")).values()) == {0.0}


# ------------------------------------------------------------------------------------------------ rules


@dataclass(eq=False)
class Script:
    """Asks for what it is given, step by step. Implements `AskingEnvironment`."""

    steps: Sequence[Sequence[Ask]]
    spec: EpisodeSpec = field(default_factory=EpisodeSpec)
    ends: list[EpisodeEnd] = field(default_factory=list)
    is_closed: bool = False

    async def begin(self, task: Task, seed: int) -> Asked:
        self._left = iter(self.steps)
        return Asked(asks=tuple(next(self._left)))

    async def tell(self, conversation: str, reply: Message) -> Asked:
        return Asked(asks=tuple(next(self._left, ())))

    async def score(self, replies: Mapping[str, Sequence[Message]], end: EpisodeEnd) -> Mapping[str, Reward]:
        self.ends.append(end)
        return {role.name: Scored(total=1.0) for role in self.spec.roles}

    async def close(self) -> None:
        self.is_closed = True


def ask(conversation: str = "main", *, role: str = "agent", caller: str | None = None, text: str = "alpha") -> Ask:
    return Ask(conversation=conversation, role=role, caller=caller, messages=(text_message("user", text),))


def inherit(conversation: str, caller: str, text: str = "beta") -> Ask:
    return replace(ask(conversation, caller=caller, text=text), inherits=True)


DEEP = EpisodeSpec(roles=(RoleSpec(name="agent", max_open=2),), max_depth=2)
PAIR = EpisodeSpec(roles=(RoleSpec(name="agent"), RoleSpec(name="judge", max_open=2)))


@pytest.mark.parametrize(
    ("steps", "spec", "problem"),
    [
        ([[ask(role="stranger")]], PAIR, "is of role 'stranger', which is not in the environment's spec"),
        ([[ask(role="judge")]], PAIR, "is of role 'judge', which has no policy; bind it in the recipe's [roles]"),
        ([[ask("a"), ask("b")]], PAIR, "asks for 2 replies of role 'agent' at once; the limit is 1"),
        ([[ask("a")], [ask("a"), ask("a")]], PAIR, "arrives before the conversation's last reply was told"),
        ([[ask("a")], [ask("a", role="judge")]], PAIR, "is of role 'judge'"),
        ([[ask("a", caller="b")]], PAIR, "is called by conversation 'b', which was never opened"),
        ([[ask("a")], [replace(ask("a"), messages=())]], PAIR, "neither ended the episode nor returned an observation"),
        ([[inherit("b", "a")]], PAIR, "is called by conversation 'a', which was never opened"),
        ([[replace(ask("b"), inherits=True)]], PAIR, "inherits from None, which is not a conversation of role 'agent'"),
        ([[ask("a")], [ask("a"), inherit("b", "a")]], DEEP, "inherits from 'a', which is still waiting for a reply"),
    ],
)
def test_an_environment_that_breaks_its_word_costs_its_episode_only(
    steps: list[list[Ask]], spec: EpisodeSpec, problem: str
) -> None:
    environment = Script(steps, spec)
    episode = play(environment, KeepingEngine(token_s=0.0), roles=["agent"])
    assert episode.stop is StopReason.ERROR
    assert isinstance(episode.reward, Invalid)
    assert problem in episode.reward.reason
    assert "EnvironmentFault" in str(episode.trajectories[0].error)
    assert environment.is_closed


def test_two_conversations_of_a_role_may_be_open_at_once_where_it_says_so() -> None:
    spec = EpisodeSpec(roles=(RoleSpec(name="agent", max_open=2),))
    episode = play(Script([[ask("a"), ask("b")]], spec), KeepingEngine(token_s=0.0), roles=["agent"])
    assert episode.reward == Scored(total=1.0)
    assert [turn.parent for turn in episode.trajectories[0].turns] == [None, None]


def test_a_conversation_that_calls_itself_without_end_is_stopped_by_depth_and_by_budget() -> None:
    calls = [[ask("c0")], *([ask(f"c{n + 1}", caller=f"c{n}")] for n in range(50))]
    deep = Script(calls, EpisodeSpec(max_depth=2))
    episode = play(deep, KeepingEngine(token_s=0.0), roles=["agent"])
    assert (episode.stop, len(episode.trajectories[0].turns)) == (StopReason.MAX_DEPTH, 3)
    assert deep.ends == [EpisodeEnd(stop=StopReason.MAX_DEPTH, conversation="c2")]
    assert [opening.caller for opening in episode.trajectories[0].conversations] == [None, "c0", "c1"]
    wide = Script(calls, EpisodeSpec(max_depth=100, max_replies=5))
    episode = play(wide, KeepingEngine(token_s=0.0), roles=["agent"])
    assert (episode.stop, len(episode.trajectories[0].turns)) == (StopReason.MAX_TURNS, 5)
    assert episode.stop.is_truncated


def test_a_game_that_never_ends_does() -> None:
    forever = [[ask("a", text="alpha")]] * 1000
    episode = play(Script(forever), KeepingEngine(token_s=0.0), roles=["agent"])
    assert (episode.stop, len(episode.trajectories[0].turns)) == (StopReason.MAX_TURNS, LIMITS.max_turns)
    assert episode.reward == Scored(total=1.0)


def test_what_was_sampled_when_an_episode_ends_is_kept_although_nobody_is_told() -> None:
    spec = EpisodeSpec(roles=(RoleSpec(name="agent", max_open=3),))
    engine, cut = KeepingEngine(token_s=0.001), replace(LIMITS, max_turn_tokens=2)
    environment = Script([[ask("a"), ask("b"), ask("c")]], spec)
    episode = play(environment, engine, roles=["agent"], limits=cut)
    assert environment.ends == [EpisodeEnd(stop=StopReason.MAX_TURN_TOKENS, conversation="a")]
    assert len(episode.trajectories[0].turns) == len(engine.delivered) == 3


# ------------------------------------------------------------------------------------------------ exactness


def test_a_conversation_that_inherits_opens_on_top_of_its_callers_history() -> None:
    steps = [[ask("a")], [inherit("b", "a")], [ask("b", text="gamma")], [inherit("c", "a")], [ask("a", text="delta")]]
    [trajectory] = play(Script(steps, DEEP), KeepingEngine(token_s=0.0), roles=["agent"]).trajectories
    turns = trajectory.turns
    assert [turn.conversation for turn in turns] == [0, 1, 1, 2, 0]
    assert [turn.parent for turn in turns] == [None, 0, 1, 0, 0]
    assert [opening.inherits for opening in trajectory.conversations] == [False, True, True]
    assert check_turns(1, trajectory) == check_endings(1, trajectory) == []
    assert check_rendering(trajectory, Opening(messages=(), tools=()), RENDERER) == []
    samples = to_samples(trajectory)
    shared = [*turns[0].context_ids.tolist(), *turns[0].completion.token_ids.tolist()]
    assert [sample.token_ids[: len(shared)].tolist() for sample in samples] == [shared] * 3
    assert [int(sample.loss_mask[: len(shared)].sum()) for sample in samples] == [
        len(turns[0].completion.token_ids),
        0,
        0,
    ]
    assert sum(int(sample.loss_mask.sum()) for sample in samples) == trajectory.num_sampled_tokens
    for sample in samples:
        np.testing.assert_array_equal(score_sample({}, sample), sample.behavior_logprobs[sample.loss_mask])
    rootless = replace(trajectory, turns=(*turns[:3], replace(turns[3], parent=1), turns[4]))
    assert "is of conversation 2, its parent of another" in str(check_turns(1, rootless))


def flatten_as_mem1(trajectory: Trajectory) -> tuple[np.ndarray, np.ndarray]:
    """All turns of a trajectory in one row, as MEM1 trains them: what precedes a token in the row, not what it was
    sampled after. Token ids and the mask of sampled ones."""
    ids = [ids for turn in trajectory.turns for ids in (turn.context_ids, turn.completion.token_ids)]
    mask = [
        np.full(len(ids), sampled)
        for turn in trajectory.turns
        for ids, sampled in ((turn.context_ids, False), (turn.completion.token_ids, True))
    ]
    return np.concatenate(ids), np.concatenate(mask)


def test_each_context_scores_as_it_was_sampled_and_one_flat_row_does_not() -> None:
    steps = [[ask("chunk0")], [ask("chunk1", text="beta")], [ask("chunk2", text="gamma")]]
    [trajectory] = play(Script(steps), KeepingEngine(token_s=0.0), roles=["agent"]).trajectories
    samples = to_samples(trajectory)
    assert len(samples) == 3  # every context is a root of its own
    for sample in samples:
        np.testing.assert_array_equal(score_sample({}, sample), sample.behavior_logprobs[sample.loss_mask])
    ids, mask = flatten_as_mem1(trajectory)
    prefix, scores = 0, []
    for token, trains in zip(ids.tolist(), mask.tolist(), strict=True):
        scores += [score_token(fingerprint({}), prefix, token)] if trains else []
        prefix = extend_hash(prefix, token)
    sampled = np.concatenate([turn.completion.logprobs for turn in trajectory.turns])
    first = len(trajectory.turns[0].completion.token_ids)
    np.testing.assert_allclose(scores[:first], sampled[:first], rtol=1e-6)
    assert np.abs(np.array(scores[first:]) - sampled[first:]).max() > 0.1
