"""Whole steps that go another way than straight through, each trained as a run trains it and then audited.

New weights in the middle of replies, attempts that are made again, attempts that limits ended, replies held to a
grammar, and programs that ran in the sandbox."""

import asyncio
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from turnwise.rollout.group import RolloutWorker

from turnwise.audit.audit import AuditReport, run_audit
from turnwise.batching.samples import to_samples
from turnwise.config.load import dump_resolved, load_config
from turnwise.core.protocols import Environment
from turnwise.core.types import (
    Completion,
    FinishReason,
    IntArray,
    Message,
    Origin,
    Reward,
    Sample,
    SamplingParams,
    StopReason,
    Task,
    to_floats,
    to_ids,
    to_mask,
)
from turnwise.credit.assignment import compute_advantages, to_credit_trajectories
from turnwise.engines.paged import PagedEngine
from turnwise.environments.math_code.policies import answer_message, code_message
from turnwise.reporting.console import Display
from turnwise.runs.build import System, build_system
from turnwise.runs.methods import build_credit_method
from turnwise.runs.train import Run
from turnwise.store.checkpoint_folder import checkpoint_writer
from turnwise.store.ledger import LEDGER, StepLedger, append_ledger, load_ledgers, reconcile
from turnwise.store.run_folder import RunFolder
from turnwise.store.trajectories import load_groups, load_rows, save_group_batch
from turnwise.training.forward import score_logprobs
from turnwise.training.optimizer import build_optimizer
from turnwise.training.state import Counters, save_training_state

RECIPES = Path(__file__).parents[3] / "recipes"
SMALL = [
    "model.config.hidden_size=32",
    "model.config.intermediate_size=32",
    "model.config.head_dim=8",
    "tokenizer.num_texts=150",
    "tokenizer.vocab_size=450",
    "rollout.tasks_per_step=2",
    "rollout.group_size=3",
    "sft.steps=0",
    "train.steps=1",
    "train.num_threads=1",
    "evaluate.tasks=0",
    "evaluate.controls={}",
    "engine.max_concurrency=16",
]


def open_run(path: Path, recipe: str, *overrides: str) -> tuple[RunFolder, System]:
    torch.set_num_threads(1)
    config = load_config([RECIPES / recipe / "tiny.toml"], [*SMALL, *overrides])
    folder = RunFolder.create(path)
    folder.write_json("config.json", dump_resolved(config))
    return folder, build_system(config)


def train(folder: RunFolder, system: System) -> StepLedger:
    """One RL step, gate and checkpoints included; its account."""
    with Display(total_steps=1, title="test", enabled=False) as show:
        Run(system, folder, show).run()
    return load_ledgers(folder.path)[1]


def rewrite_arrays(run: Path, change: Callable[[dict[str, np.ndarray]], Any]) -> None:
    path = run / "trajectories" / "step_000001.npz"
    with np.load(path) as data:
        arrays = {name: data[name] for name in data.files}
    change(arrays)
    np.savez(path, **arrays)


def found_by(report: AuditReport) -> set[str]:
    return {breach.check for breach in report.breaches}


# ------------------------------------------------------------------------------------------- versions in the middle of
# replies


async def sample_across_versions(
    system: System, worker: RolloutWorker, tasks: Sequence[tuple[str, Task]], num_tokens: int
) -> Any:
    """Groups whose replies under way after `num_tokens` tokens go on under new weights."""
    engine = system.engine
    assert isinstance(engine, PagedEngine)
    job = asyncio.create_task(worker.run_groups(tasks, group_size=3))
    while engine.statistics().num_sampled_tokens < num_tokens:
        await asyncio.sleep(0)
    engine.pause()
    await asyncio.sleep(0.01)
    with torch.no_grad():
        for parameter in system.model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)) * 0.05)
    engine.adopt(1)
    engine.resume()
    return await job


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A step whose tokens are of versions 0 and 1, trained by version 1 with a staleness of 1."""
    path = tmp_path_factory.mktemp("interrupted") / "run"
    folder, system = open_run(path, "search_r1")
    optimizer = build_optimizer(system.model, lr=0.0, betas=(0.9, 0.99), weight_decay=0.0)

    def checkpoint(version: int) -> None:
        with checkpoint_writer(path, version) as temporary:
            counters = Counters(step=version, optimizer_steps=version, version=version)
            save_training_state(temporary, system.model, system.tokenizer, optimizer, counters)

    checkpoint(0)
    tasks = [(f"step1/task{i}", system.family.task("train", i)) for i in range(2)]
    groups = asyncio.run(sample_across_versions(system, system.worker("train"), tasks, num_tokens=30))
    checkpoint(1)
    advantages = {
        key: [to_floats(turn) for turn in turns]
        for key, turns in compute_advantages(
            build_credit_method(system.config), groups, to_credit_trajectories(groups)
        ).items()
    }
    samples = [
        s for group in groups for t in group.trajectories for s in to_samples(t, advantages[group.group_id, t.member])
    ]
    append_ledger(path, reconcile(1, groups, [samples], version=1, max_staleness=1))
    save_group_batch(path / "trajectories", "step_000001", groups, advantages=advantages, decode=None)
    folder.append_metrics(1, "train", {})
    return path


@pytest.fixture
def mixed(interrupted: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(interrupted, tmp_path / "run"))


def versions_of(run: Path) -> np.ndarray:
    groups, _ = load_groups(run / "trajectories", "step_000001")
    turns = [
        turn.completion
        for group in groups
        for t in group.trajectories
        for turn in t.turns
        if turn.completion.versions is not None
    ]
    return np.concatenate([completion.versions for completion in turns if completion.versions is not None])


def test_every_token_is_scored_under_the_version_that_sampled_it(interrupted: Path) -> None:
    assert set(versions_of(interrupted)) == {0, 1}
    report = run_audit(interrupted)
    assert report.breaches == []
    assert report.tallies["logprobs"].checked == load_ledgers(interrupted)[1].sampled
    assert report.tallies["logprobs"].not_checked.total() == 0


def test_tokens_of_a_version_that_is_not_kept_are_counted(mixed: Path) -> None:
    shutil.rmtree(mixed / "checkpoints" / "step_000000")
    with np.load(mixed / "trajectories" / "step_000001.npz") as data:
        old, new = int((data["versions"] == 0).sum()), int((data["versions"] == 1).sum())
    report = run_audit(mixed)
    assert report.breaches == []
    assert report.tallies["logprobs"].checked == new > 0
    assert report.tallies["logprobs"].not_checked == {"tokens sampled by weights of which no checkpoint is kept": old}


def test_a_moved_border_between_versions_is_found_with_the_ledger_and_without(mixed: Path) -> None:
    def move(arrays: dict[str, np.ndarray]) -> None:
        versions = arrays["versions"]
        # Three tokens of version 0 become version 1, where a reply has both.
        border = next(i for i in range(4, len(versions)) if versions[i] == 1 and (versions[i - 4 : i] == 0).all())
        versions[border - 3 : border] = 1

    rewrite_arrays(mixed, move)
    assert found_by(run_audit(mixed)) == {"ledger", "logprobs"}
    (mixed / LEDGER).unlink()
    assert found_by(run_audit(mixed)) == {"logprobs"}


def test_an_old_folder_says_which_tokens_it_cannot_prove(mixed: Path) -> None:
    """Without versions per token, replies of one version are scored and the others counted."""
    completions = [
        turn.completion
        for group in load_groups(mixed / "trajectories", "step_000001")[0]
        for trajectory in group.trajectories
        for turn in trajectory.turns
    ]
    unknown = sum(len(c.token_ids) for c in completions if c.version_first != c.version_last)
    rewrite_arrays(mixed, lambda arrays: [arrays.pop(name) for name in ("versions", "full_logprobs")])
    (mixed / LEDGER).unlink()
    report = run_audit(mixed)
    assert report.breaches == []
    assert report.tallies["logprobs"].checked == sum(len(c.token_ids) for c in completions) - unknown
    [(reason, count)] = report.tallies["logprobs"].not_checked.items()
    assert count == unknown > 0
    assert "which of several weight versions" in reason


# ------------------------------------------------------------------------------------------- attempts that are made
# again


class Flaky:
    """Every second environment fails when it is asked for a score."""

    def __init__(self, family: Any) -> None:
        self._family = family
        self._num_built = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._family, name)

    def build_environment(self) -> Environment:
        environment = self._family.build_environment()
        self._num_built += 1
        if self._num_built % 2:

            async def fail(replies: Sequence[Message], stop: StopReason) -> Reward:
                raise ConnectionError("the judge is away")

            environment.score = fail
        return environment  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def flaky(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("flaky") / "run"
    folder, system = open_run(path, "search_r1", "rollout.max_retries=3", "rollout.max_invalid_share=1")
    train(folder, replace(system, family=Flaky(system.family)))
    return path


def test_tokens_of_attempts_that_were_made_again_stand_in_the_ledger(flaky: Path) -> None:
    ledger = load_ledgers(flaky)[1]
    thrown_away, _ = load_groups(flaky / "trajectories", "step_000001_retried")
    attempts = [(t.group_id, t.member, t.attempt) for group in thrown_away for t in group.trajectories]
    assert attempts == sorted(set(attempts))
    assert len(attempts) >= 3, "of 6 first attempts at least every second one fails"
    retried = sum(t.num_sampled_tokens for group in thrown_away for t in group.trajectories)
    assert ledger.dropped["retried"] == retried > 0
    assert ledger.sampled == ledger.trained + sum(ledger.dropped.values())
    [row] = [row for row in RunFolder.open(flaky).read_metrics() if row["phase"] == "train"]
    assert row["rollout/sampled_tokens"] == ledger.sampled
    report = run_audit(flaky)
    assert report.breaches == []
    assert report.tallies["logprobs"].checked == report.tallies["ledger"].checked == ledger.sampled


def test_a_thrown_away_attempt_is_proven_like_any_other(flaky: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(flaky, tmp_path / "run"))
    path = run / "trajectories" / "step_000001_retried.npz"
    with np.load(path) as data:
        arrays = {name: data[name] for name in data.files}
    arrays["token_ids"][np.flatnonzero(arrays["loss_mask"])[0]] ^= 5
    np.savez(path, **arrays)
    assert {"ledger", "logprobs", "prompts"} <= found_by(run_audit(run))
    path.unlink()
    assert found_by(run_audit(run)) == {"files", "ledger"}
    path.with_suffix(".jsonl").unlink()
    breaches = run_audit(run).breaches
    assert {breach.check for breach in breaches} == {"ledger"}
    assert "which was retried, is not in the store as it is in the ledger" in breaches[0].text


# ------------------------------------------------------------------------------------------- replies from a script


class ScriptedPolicyEngine:
    """Replies from a script, with the log-probabilities the policy gives them. `reply` takes the member and the number
    of the turn."""

    def __init__(self, system: System, reply: Callable[[int, int], Message]) -> None:
        self.version = 0
        self._system = system
        self._reply = reply
        self._turns: dict[str, int] = {}

    def adopt(self, version: int) -> None:
        self.version = version

    async def generate(self, prompt_ids: IntArray, params: SamplingParams, *, session: str) -> Completion:
        turn = self._turns[session] = self._turns.get(session, -1) + 1
        whole = self._system.renderer.encode_reply(self._reply(int(session.split("/")[-2]), turn))
        ids = to_ids(whole[: params.max_tokens])
        mask = np.arange(len(prompt_ids) + len(ids)) >= len(prompt_ids)
        sample = Sample(
            token_ids=to_ids(np.concatenate([prompt_ids, ids])),
            loss_mask=to_mask(mask),
            behavior_logprobs=to_floats(0.0 * mask),
            advantages=to_floats(0.0 * mask),
            version_first=0,
            version_last=0,
            origin=Origin(task_id="", group_id="", member=0),
        )
        [logprobs] = score_logprobs(self._system.model, [sample], params.temperature, micro_batch_tokens=4096)
        return Completion(
            token_ids=ids,
            logprobs=to_floats(logprobs),
            finish_reason=FinishReason.LENGTH if len(ids) < len(whole) else FinishReason.STOP,
            version_first=self.version,
            version_last=self.version,
        )

    async def release(self, session: str) -> None:
        """Nothing to free."""


def script(system: System, reply: Callable[[int, int], Message]) -> System:
    return replace(system, engine=ScriptedPolicyEngine(system, reply))  # type: ignore[arg-type]


def answer(member: int, turn: int) -> Message:
    """Member 0 answers 0, member 1 answers 1, member 2 goes on for longer than it may."""
    return answer_message(" ".join(["2"] * 60) if member == 2 else member)


@pytest.mark.parametrize(("trains", "dropped"), [("true", set()), ("false", {"truncated"})])
def test_what_a_limit_ended_is_left_out_where_the_recipe_says_so(
    tmp_path: Path, trains: str, dropped: set[str]
) -> None:
    folder, system = open_run(
        tmp_path / "run", "retool", "credit.method=reinforce", f"rollout.train_truncated={trains}"
    )
    ledger = train(folder, script(system, answer))
    assert set(ledger.dropped) == dropped
    of_member = {member: [e for e in ledger.entries if e.member == member] for member in range(3)}
    assert all(e.trained == e.sampled > 0 for member in (0, 1) for e in of_member[member])
    assert all(e.trained == (0 if dropped else e.sampled) and e.sampled == 40 for e in of_member[2])
    report = run_audit(folder.path)
    assert report.breaches == []
    assert report.tallies["advantages"].checked == (4 if dropped else 6)


def test_a_step_of_truncated_attempts_only_leaves_the_weights_alone(tmp_path: Path) -> None:
    folder, system = open_run(tmp_path / "run", "retool", "rollout.train_truncated=false")
    before = {name: tensor.clone() for name, tensor in system.model.state_dict().items()}
    ledger = train(folder, script(system, lambda member, turn: answer(2, turn)))
    assert (ledger.trained, ledger.dropped, ledger.num_updates) == (0, {"truncated": ledger.sampled}, 0)
    assert all(torch.equal(tensor, before[name]) for name, tensor in system.model.state_dict().items())
    assert run_audit(folder.path).breaches == []


def test_groups_beyond_what_the_step_needs_are_over_budget(tmp_path: Path) -> None:
    """Both groups of the first batch teach nothing, as does the first of the second; what is drawn after that does.

    Of 2 groups wanted, refills draw 2 and 2 more: 1 teaches of the first 4, 3 of 6, one more than the step takes.
    """
    folder, system = open_run(
        tmp_path / "run",
        "retool",
        "rollout.dynamic_sampling.metric=reward",
        "rollout.group_size=2",
        "rollout.dynamic_sampling.max_batches=9",
    )
    engine = ScriptedPolicyEngine(system, answer)
    generate = engine.generate

    async def teach_late(prompt_ids: IntArray, params: SamplingParams, *, session: str) -> Completion:
        group, member = session.split("/")[-3], session.split("/")[-2]
        teaches = group in ("task3", "task4", "task5") and member == "1"
        engine._reply = lambda _, turn: answer_message(gold(system, session)) if teaches else answer_message("none")
        return await generate(prompt_ids, params, session=session)

    engine.generate = teach_late  # type: ignore[method-assign]
    ledger = train(folder, replace(system, engine=engine))  # type: ignore[arg-type]
    reasons = {entry.group_id.rpartition("/")[2]: set(entry.dropped) for entry in ledger.entries}
    assert reasons == {
        "task0": {"filtered_group"},
        "task1": {"filtered_group"},
        "task2": {"filtered_group"},
        "task3": set(),
        "task4": set(),
        "task5": {"over_budget"},
    }
    assert run_audit(folder.path).breaches == []


def gold(system: System, session: str) -> str:
    """The right answer of the task a session belongs to."""
    number = int(session.split("/")[-3].removeprefix("task"))
    return str(system.family.task("train", number).payload["answers"][0])


# ------------------------------------------------------------------------------------------- programs in the sandbox


def compute(member: int, turn: int) -> Message:
    """Every member computes 1 + 2, or divides by 0, and then answers with its own number."""
    if turn:
        return answer_message(member)
    return code_message("print(1 / 0)" if member == 1 else "print(1 + 2)", 0)


@pytest.fixture(scope="module")
def retool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, system = open_run(tmp_path_factory.mktemp("retool") / "run", "retool")
    train(folder, script(system, compute))
    return folder.path


def test_programs_run_again_give_what_the_model_was_shown(retool: Path) -> None:
    report = run_audit(retool, replay_tools=True)
    assert report.breaches == []
    assert report.tallies["tools"].checked == 6
    assert report.tallies["tools"].not_checked.total() == 0
    assert report.tallies["rewards"].checked == 6
    shown = {
        turn["tool_records"][0]["observation"]
        for row in load_rows(retool / "trajectories", "step_000001")
        for turn in row["turns"][:1]
    }
    assert len(shown) == 2
    assert any("ZeroDivisionError" in text for text in shown)


def test_a_changed_output_of_the_interpreter_is_found(retool: Path, tmp_path: Path) -> None:
    """Record, observation and tokens all say 4 where the program printed 3: only running it again can tell, without
    ledger and weights."""
    run = Path(shutil.copytree(retool, tmp_path / "run"))
    (run / LEDGER).unlink()
    groups, advantages = load_groups(run / "trajectories", "step_000001")
    _, system = open_run(tmp_path / "other", "retool")
    [first, *rest] = groups[0].trajectories
    program, reply = first.turns
    [record], [observation] = program.tool_records, program.observations
    assert record.observation.strip() == "3"
    changed = record.observation.replace("3", "4")
    program = replace(
        program,
        tool_records=(replace(record, observation=changed),),
        observations=(replace(observation, content=(replace(observation.content[0], text=changed),)),),
    )
    context_ids = system.renderer.extend(program.context_ids, program.completion.token_ids, program.observations, ())
    forged = replace(first, turns=(program, replace(reply, context_ids=context_ids)))
    groups[0] = replace(groups[0], trajectories=(forged, *rest))
    save_group_batch(run / "trajectories", "step_000001", groups, advantages=advantages, decode=None)
    for path in (run / "checkpoints").glob("step_*"):
        if path.name != "step_000001":
            shutil.rmtree(path)
    assert run_audit(run).breaches == []
    [breach] = run_audit(run, replay_tools=True).breaches
    assert breach.check == "tools"
    assert breach.trajectory == f"{first.group_id}/0"
    assert "gives '3" in breach.text
    assert "on record is '4" in breach.text


# ------------------------------------------------------------------------------------------- replies held to a grammar


@pytest.fixture(scope="module")
def guided(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("llguidance")
    folder, system = open_run(
        tmp_path_factory.mktemp("guided") / "run",
        "search_r1",
        "renderer.kind=chat",
        "rollout.grammar=calls",
        "evaluate.grammar=calls",
        "evaluate.tasks=2",
        "rollout.max_tokens=1000",
        "rollout.max_turn_tokens=24",
        "engine.max_context=1000",
        "model.config.max_position_embeddings=1024",
    )
    train(folder, system)
    return folder.path


def test_a_run_may_hold_replies_to_a_grammar(guided: Path) -> None:
    """The gate passed, so the trainer gave the sampled tokens the probabilities they have without the grammar; the
    audit finds the same."""
    groups, _ = load_groups(guided / "trajectories", "step_000001")
    completions = [turn.completion for group in groups for t in group.trajectories for turn in t.turns]
    gaps = np.concatenate([c.logprobs - c.full_logprobs for c in completions if c.full_logprobs is not None])
    assert len(gaps) == load_ledgers(guided)[1].sampled
    assert gaps.min() >= 0
    assert gaps.max() > 1e-3, "the grammar took something away"
    report = run_audit(guided)
    assert report.breaches == []
    assert report.tallies["logprobs"].checked == len(gaps)


def test_an_evaluation_may_hold_replies_to_a_grammar(guided: Path) -> None:
    groups, _ = load_groups(guided / "evaluations", "heldout_000001")
    completions = [turn.completion for group in groups for t in group.trajectories for turn in t.turns]
    assert len(completions) >= 2
    assert all(c.full_logprobs is not None and (c.logprobs >= c.full_logprobs).all() for c in completions)


@pytest.mark.parametrize(("name", "checks"), [("full_logprobs", {"ledger", "logprobs"}), ("logprobs", {"ledger"})])
def test_both_log_probabilities_of_a_guided_token_are_proven(
    guided: Path, tmp_path: Path, name: str, checks: set[str]
) -> None:
    run = Path(shutil.copytree(guided, tmp_path / "run"))
    sign = -0.25 if name == "full_logprobs" else 0.25

    def change(arrays: dict[str, np.ndarray]) -> None:
        at = next(i for i in np.flatnonzero(arrays["loss_mask"]) if arrays["logprobs"][i] < -1)
        arrays[name][at] += sign

    rewrite_arrays(run, change)
    assert found_by(run_audit(run)) == checks


def test_a_whole_distribution_without_a_grammar_is_found(interrupted: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(interrupted, tmp_path / "run"))
    rewrite_arrays(run, lambda arrays: arrays["full_logprobs"].__setitem__(slice(5), -1.0))
    assert found_by(run_audit(run)) == {"masks"}
