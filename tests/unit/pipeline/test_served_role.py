"""A chat server on loopback speaks for a role: what it is asked, and what becomes of its failures."""

import threading
from pathlib import Path

import numpy as np
import pytest
from asking_worlds import WandererFamily
from chat_server import Reply, chat_server
from pipeline_world import Pace, World, make_config

from turnwise.core.errors import ConfigError
from turnwise.core.types import Invalid
from turnwise.store.groups import GroupStore


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda handle: None)
    monkeypatch.setattr("turnwise.runs.roles.RETRIES_S", (0.0,))


def make_world(path: Path, url: str, **rollout: float) -> World:
    config = make_config(rollout={"max_turns": 8, "max_retries": 0, **rollout}, train={"steps": 2})
    config = config.model_copy(update={"roles": {"second": f"api:{url}#tiny"}})
    return World(path=path, config=config, family=WandererFamily(), pace=Pace(token_s=0, environment_s=0, step_s=0))


def test_a_server_speaks_for_a_role_without_log_probabilities(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "very-secret")
    with chat_server(lambda prompt: f"<answer> beta {'kappa' if 'alpha' in prompt else ''} </answer>") as (
        url,
        requests,
    ):
        world = make_world(tmp_path / "run", url)
        world.live()
    report = world.audit()
    assert not report.breaches, [str(breach) for breach in report.breaches]
    turns = [
        turn
        for draw in range(4)
        for t in GroupStore(world.path).load(draw).trajectories
        if t.id.role == "second"
        for turn in t.turns
    ]
    assert len(turns) == len(requests) > 0
    assert all(np.isnan(turn.completion.logprobs).all() for turn in turns)
    assert {turn.message.text.split()[1] for turn in turns} == {"beta"}
    assert all(request["key"] == "Bearer very-secret" and request["model"] == "tiny" for request in requests)
    assert {request["temperature"] for request in requests} == {world.config.rollout.temperature}
    assert [message["role"] for message in requests[0]["messages"]] == ["user"]
    assert max(len(request["messages"]) for request in requests) > 1  # with what was said before
    seconds = [line for line in world.read_lines("ledger.jsonl") if line["role"] == "second"]
    assert all((line["trained"], line["fate"]) == (0, "not_learning") for line in seconds)
    written = b"".join(path.read_bytes() for path in world.path.rglob("*") if path.is_file())
    assert b"very-secret" not in written


def test_a_server_that_is_down_or_wants_a_key_is_refused_at_the_start(tmp_path: Path) -> None:
    with chat_server(lambda _: "unused") as (url, _):
        pass
    with pytest.raises(ConfigError, match=r"roles.second: no server answers at .*; start it, or change the address"):
        make_world(tmp_path / "down", url).live()
    with (
        chat_server(lambda _: (401, "who are you?")) as (url, _),
        pytest.raises(ConfigError, match="refuses the request with status 401; set OPENAI_API_KEY to its key"),
    ):
        make_world(tmp_path / "locked", url).live()


def test_a_server_that_fails_in_between_costs_episodes_and_the_run_goes_on(tmp_path: Path) -> None:
    count, lock = [0], threading.Lock()

    def reply(prompt: str) -> Reply:
        with lock:
            count[0] += "models" not in prompt
        if 4 <= count[0] < 8:  # both tries of two requests that may be under way
            return (500, "broken")
        return "<answer> beta </answer>"

    with chat_server(reply) as (url, _):
        world = make_world(tmp_path / "run", url, max_invalid_share=0.9)
        world.config = world.config.model_copy(
            update={"engine": world.config.engine.model_copy(update={"max_concurrency": 1})}
        )
        world.live()
    assert sorted(world.sums()) == [1, 2]
    report = world.audit()
    assert not report.breaches, [str(breach) for breach in report.breaches]
    groups = [GroupStore(world.path).load(draw) for draw in GroupStore(world.path).list_draws()]
    failed = [t.reward.reason for group in groups for t in group.trajectories if isinstance(t.reward, Invalid)]
    assert failed
    assert all("EngineError" in reason and "answered 500: broken; is the server up?" in reason for reason in failed)


def test_a_reply_that_is_too_long_is_cut(tmp_path: Path) -> None:
    with chat_server(lambda _: "alpha beta gamma delta epsilon zeta eta theta iota kappa" * 3) as (url, _):
        world = make_world(tmp_path / "run", url)
        world.live()
    report = world.audit()
    assert not report.breaches, [str(breach) for breach in report.breaches]
    groups = [GroupStore(world.path).load(draw) for draw in range(4)]
    lengths = [
        len(turn.completion.token_ids)
        for group in groups
        for t in group.trajectories
        if t.id.role == "second"
        for turn in t.turns
    ]
    assert lengths
    assert set(lengths) == {world.config.rollout.max_turn_tokens}
