"""Runs that go another way than straight through, each trained as a user trains it and then audited.

New weights in the middle of replies; attempts that are made again, over-drawn or ended by a limit, and programs that
run in the sandbox; replies held to a grammar."""

import asyncio
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from turnwise.audit import recheck
from turnwise.audit.audit import AuditReport
from turnwise.building.checks import check_methods
from turnwise.config.load import dump_resolved, load_config
from turnwise.core.protocols import Environment, Interrupt
from turnwise.core.types import (
    Completion,
    DropReason,
    FinishReason,
    FloatArray,
    IntArray,
    Message,
    Origin,
    Reward,
    Sample,
    SamplingParams,
    Session,
    StopReason,
    Task,
    TextPart,
    TrajectoryId,
    to_floats,
    to_ids,
    to_mask,
)
from turnwise.engines.paged import PagedEngine
from turnwise.environments.math_code.policies import answer_message, run_message
from turnwise.models.checksums import compute_checksums
from turnwise.reporting.console import Display
from turnwise.rollout.meter import MeteredEngine
from turnwise.runs.audit import audit_run
from turnwise.runs.build import System, build_system
from turnwise.runs.train import Run
from turnwise.store.groups import GroupStore, digest_files
from turnwise.store.journal import JOURNAL, read_journal
from turnwise.store.ledger import load_accounts
from turnwise.store.run_folder import RunFolder
from turnwise.store.trajectories import load_arrays, load_groups
from turnwise.training.forward import score_logprobs

RECIPES = Path(__file__).parents[2] / "recipes"
SMALL = [
    "model.config.hidden_size=32",
    "model.config.intermediate_size=32",
    "model.config.head_dim=8",
    "tokenizer.num_texts=150",
    "tokenizer.vocab_size=450",
    "rollout.tasks_per_step=1",
    "rollout.group_size=3",
    "sft.steps=0",
    "train.steps=2",
    "train.checkpoint_every=1",
    "train.keep_checkpoints=3",
    "train.num_threads=1",
    "evaluate.tasks=0",
    "evaluate.controls={}",
    "engine.max_concurrency=16",
]
DEADLINE_S = 60.0


def train(
    path: Path, recipe: str, *overrides: str, prepare: Callable[[System], System] = lambda system: system
) -> Path:
    """Train a small model by a recipe into the folder `path`, which is returned."""
    config = check_methods(load_config([RECIPES / recipe / "tiny.toml"], [*SMALL, *overrides]))
    folder = RunFolder.create(path)
    folder.write_json("config.json", dump_resolved(config))
    with Display(total_steps=config.train.steps, title="test", enabled=False) as show:
        asyncio.run(Run(prepare(build_system(config, training=True)), folder, show).run())
    return path


def copy_run(run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(run, tmp_path / "run"))


def found_by(report: AuditReport) -> set[str]:
    return {breach.check for breach in report.breaches}


def rewrite_arrays(run: Path, draw: int, change: Callable[[dict[str, np.ndarray]], None]) -> None:
    """Change the token arrays of a draw as an honest writer would: the journal has the digest of what is written."""
    npz, jsonl = GroupStore(run).paths(draw)
    arrays = load_arrays(npz.parent, npz.stem)
    change(arrays)
    np.savez(npz, **arrays)  # type: ignore[arg-type]
    note_digest(run, draw, digest_files(npz.read_bytes(), jsonl.read_bytes()))


def note_digest(run: Path, draw: int, digest: str) -> None:
    """Let the journal say that this is what was stored."""
    before = read_journal(run).draws[draw].digest
    assert before is not None
    journal = run / JOURNAL
    journal.write_text(journal.read_text().replace(before, digest))


# ------------------------------------------------------------------- new weights in the middle of replies


def publish_into_replies(system: System) -> System:
    """Draw n samples its first tokens while version n waits to be published, and the others after that."""
    engine = system.engine.engine
    assert isinstance(engine, PagedEngine)
    num_steps = system.config.train.steps
    has_begun = [asyncio.Event() for _ in range(num_steps + 1)]
    generate, pause = engine.generate, engine.pause

    async def generate_late(prompt_ids: IntArray, params: SamplingParams, *, session: Session) -> Completion:
        scope, draw = session.group.split("/")
        if scope == "train":
            await has_begun[int(draw)].wait()
        return await generate(prompt_ids, params, session=session)

    async def pause_in_replies(interrupt: Interrupt = "continue") -> int:
        version = sum(event.is_set() for event in has_begun)
        has_begun[version].set()
        if 0 < version < num_steps:
            enough = engine.statistics().num_sampled_tokens + 20
            async with asyncio.timeout(DEADLINE_S):
                while engine.statistics().num_sampled_tokens < enough:
                    await asyncio.sleep(0)
        return await pause(interrupt)

    engine.generate = generate_late  # type: ignore[method-assign]
    engine.pause = pause_in_replies  # type: ignore[method-assign]
    return system


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two asynchronous steps. Replies of draw 1 are of versions 0 and 1."""
    return train(
        tmp_path_factory.mktemp("interrupted") / "run",
        "search_r1",
        "schedule.max_staleness=1",
        "schedule.interrupt=continue",
        "loss.entropy_coefficient=1",  # the weights change although no reply earns a reward
        "train.lr=0.02",
        prepare=publish_into_replies,
    )


def test_every_token_is_scored_under_the_version_that_sampled_it(interrupted: Path) -> None:
    replies = [turn.completion for t in GroupStore(interrupted).load(1).trajectories for turn in t.turns]
    assert {0, 1} in [set() if reply.versions is None else set(reply.versions) for reply in replies]
    accounts = load_accounts(interrupted)
    assert [(account.version, account.oldest_version) for account in accounts] == [(0, 0), (1, 0)]
    report = audit_run(interrupted)
    assert report.breaches == []
    assert report.tallies["logprobs"].checked == sum(account.sampled for account in accounts)
    assert report.tallies["logprobs"].not_checked.total() == 0


def test_tokens_of_a_version_that_is_not_kept_are_counted(interrupted: Path, tmp_path: Path) -> None:
    run = copy_run(interrupted, tmp_path)
    shutil.rmtree(run / "checkpoints" / "step_000001")
    npz, _ = GroupStore(run).paths(1)
    num_new = int((load_arrays(npz.parent, npz.stem)["versions"] == 1).sum())
    report = audit_run(run)
    assert report.breaches == []
    sampled = sum(account.sampled for account in load_accounts(run))
    assert report.tallies["logprobs"].checked == sampled - num_new > 0
    assert report.tallies["logprobs"].not_checked == {
        "tokens sampled by weights of which no checkpoint is kept": num_new
    }


def test_a_moved_border_between_versions_is_found(interrupted: Path, tmp_path: Path) -> None:
    def move(arrays: dict[str, np.ndarray]) -> None:
        versions = arrays["versions"]
        # Two tokens of version 0 become version 1, where a reply has both.
        border = next(i for i in range(3, len(versions)) if versions[i - 3 : i + 1].tolist() == [0, 0, 0, 1])
        versions[border - 2 : border] = 1

    run = copy_run(interrupted, tmp_path)
    rewrite_arrays(run, 1, move)
    assert found_by(audit_run(run)) == {"ledger", "logprobs"}


# ------------------------------------------------------------------- attempts from a script, with the policy's weights

AWAY = answer_message("99")
"""The answer that the judge of `Flaky` cannot be asked about."""
NUM_TOO_MANY = 60
"""Words of an answer that is longer than a reply may be."""


def choose_reply(draw: int, member: int, attempt: int, turn: int, gold: str) -> Message | None:
    """None where the reply never comes. All attempts of draw 1 run into a limit."""
    if draw or member == 2:
        return answer_message(" ".join(["2"] * NUM_TOO_MANY))
    if (member, attempt) == (1, 0):
        return AWAY
    if turn == 0:
        return run_message("python", "print(1 / 0)" if member == 1 else "print(1 + 2)", 0)
    return {0: answer_message(gold), 1: answer_message("none"), 3: None}[member]


class ScriptedPolicy:
    """Implements `core.protocols.PausableEngine`: replies of `choose_reply`, with the log-probabilities that the policy
    gives them."""

    def __init__(self, system: System) -> None:
        self.version = 0
        self._system = system
        self._num_replies: dict[Session, int] = {}
        self._is_overdrawn = asyncio.Event()
        """Whether the reply that never comes was asked for."""

    async def generate(self, prompt_ids: IntArray, params: SamplingParams, *, session: Session) -> Completion:
        turn = self._num_replies[session] = self._num_replies.get(session, -1) + 1
        scope, draw = session.group.split("/")
        member, attempt = map(int, session.name.split("/"))
        gold = self._system.family.task("train", int(draw)).payload["answers"][0]
        reply = choose_reply(int(draw), member, attempt, turn, gold)
        async with asyncio.timeout(DEADLINE_S):
            while reply is None:
                self._is_overdrawn.set()
                await asyncio.sleep(DEADLINE_S)
            if scope == "train" and reply.text == answer_message(gold).text:
                await self._is_overdrawn.wait()
        whole = self._system.renderer.encode_reply(reply)
        ids = to_ids(whole[: params.max_tokens])
        return Completion(
            token_ids=ids,
            logprobs=self._score(prompt_ids, ids, params.temperature),
            finish_reason=FinishReason.LENGTH if len(ids) < len(whole) else FinishReason.STOP,
            version_first=self.version,
            version_last=self.version,
        )

    def _score(self, prompt_ids: IntArray, reply_ids: IntArray, temperature: float) -> FloatArray:
        token_ids = to_ids(np.concatenate([prompt_ids, reply_ids]))
        sample = Sample(
            token_ids=token_ids,
            loss_mask=to_mask(np.arange(len(token_ids)) >= len(prompt_ids)),
            behavior_logprobs=to_floats(np.zeros(len(token_ids))),
            advantages=to_floats(np.zeros(len(token_ids))),
            version_first=0,
            version_last=0,
            origin=Origin(trajectory=TrajectoryId(draw=0, member=0), task_id=""),
        )
        [logprobs] = score_logprobs(self._system.model, [sample], temperature, micro_batch_tokens=4096)
        return to_floats(logprobs)

    async def release(self, session: Session) -> None:
        """Nothing to free."""

    async def close(self) -> None:
        """Nothing to free."""

    async def pause(self, interrupt: Interrupt) -> int:
        return 0

    async def adopt(self, version: int) -> dict[str, int]:
        self.version = version
        return dict(compute_checksums(self._system.model))

    async def resume(self) -> None:
        """Nothing was stopped."""


class Flaky:
    """A family whose judge is away when it is asked about the answer `AWAY`."""

    def __init__(self, family: Any) -> None:
        self._family = family

    def __getattr__(self, name: str) -> Any:
        return getattr(self._family, name)

    def build_environment(self, task: Task) -> Environment:
        environment = self._family.build_environment(task)
        score = environment.score

        async def ask(replies: Sequence[Message], stop: StopReason) -> Reward:
            if replies[-1].text == AWAY.text:
                raise ConnectionError("the judge is away")
            return await score(replies, stop)  # type: ignore[no-any-return]

        environment.score = ask
        return environment  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two steps. In draw 0 members 0 and 1 run a program and answer, 1 at its second attempt; a limit ends member 2;
    member 3 is over-drawn after its program. In draw 1 a limit ends every member."""
    return train(
        tmp_path_factory.mktemp("scripted") / "run",
        "retool",
        "credit.method=reinforce",
        "rollout.train_truncated=false",
        "schedule.overdraw=1",
        "environment.args.wall_s=20",  # for a loaded machine
        "environment.args.tool_timeout_s=60",
        prepare=lambda system: replace(
            system, family=Flaky(system.family), engine=MeteredEngine(ScriptedPolicy(system))
        ),
    )


def test_every_attempt_is_on_the_ledger_with_what_became_of_it(scripted: Path) -> None:
    first, second = load_accounts(scripted)
    fates = {(e.trajectory.member, e.trajectory.attempt): (e.trained, e.dropped) for e in first.entries}
    discarded = {(each.reason, each.trajectory.id.member) for each in GroupStore(scripted).load(0).discarded}
    assert discarded == {(DropReason.RETRIED, 1), (DropReason.OVERDRAWN, 3)}
    assert fates.keys() == {(0, 0), (1, 0), (1, 1), (2, 0), (3, 0)}
    assert all(fates[name][0] > 0 and not fates[name][1] for name in ((0, 0), (1, 1)))
    for name, reason in (((1, 0), "retried"), ((2, 0), "truncated"), ((3, 0), "overdrawn")):
        assert fates[name][0] == 0
        assert fates[name][1].keys() == {reason}
    assert fates[2, 0] == (0, {"truncated": 40}), "rollout.max_turn_tokens"
    assert (second.trained, second.dropped) == (0, {"truncated": 120, "overdrawn": 40})
    rows = [row for row in RunFolder.open(scripted).read_metrics() if row["phase"] == "train"]
    assert [row["rollout/sampled_tokens"] for row in rows] == [first.sampled, second.sampled]


def test_a_step_of_truncated_attempts_only_leaves_the_weights_alone(scripted: Path) -> None:
    weights = [(scripted / "checkpoints" / f"step_{step:06d}" / "model.safetensors").read_bytes() for step in range(3)]
    assert weights[0] != weights[1]
    assert weights[1] == weights[2]
    trained = read_journal(scripted).trained
    assert trained[1].sums == trained[2].sums
    assert (trained[1].version, trained[2].version) == (1, 2)


def test_programs_run_again_give_what_the_model_was_shown(scripted: Path) -> None:
    report = audit_run(scripted, replay_tools=True)
    assert report.breaches == []
    sampled = sum(account.sampled for account in load_accounts(scripted))
    assert report.tallies["logprobs"].checked == report.tallies["ledger"].checked == sampled
    # The programs of members 0 and 1; attempts that were retried or cut have no score.
    assert report.tallies["tools"].checked == 2
    assert report.tallies["tools"].not_checked == {"calls of attempts that could not be scored": 1}
    # Of draw 0 members 0, 1 and 2, of draw 1 those and the over-drawn one, which ended with the others.
    assert report.tallies["rewards"].checked == 7
    # Of members 0 and 1 in the first step, and of no member in the second.
    assert report.tallies["advantages"].checked == 2
    group = GroupStore(scripted).load(0)
    three, error = (trajectory.turns[0].tool_records[0].observation for trajectory in group.trajectories[:2])
    assert three.strip() == "3"
    assert "ZeroDivisionError" in error


@pytest.mark.parametrize("reason", [DropReason.RETRIED, DropReason.OVERDRAWN])
def test_a_changed_token_of_a_discarded_attempt_is_found(scripted: Path, tmp_path: Path, reason: DropReason) -> None:
    run = copy_run(scripted, tmp_path)
    store = GroupStore(run)
    group = store.load(0)
    [discarded] = [each for each in group.discarded if each.reason is reason]
    first, *others = discarded.trajectory.turns
    ids = first.completion.token_ids.copy()
    ids[1] ^= 5
    forged = replace(first, completion=replace(first.completion, token_ids=ids))
    trajectory = replace(discarded.trajectory, turns=(forged, *others))
    changed = [replace(each, trajectory=trajectory) if each is discarded else each for each in group.discarded]
    note_digest(run, 0, store.save(replace(group, discarded=tuple(changed)), None))
    report = audit_run(run)
    assert {"ledger", "logprobs", "prompts"} <= found_by(report)
    # The mean difference of all log-probabilities is above its bound, too.
    assert {breach.trajectory for breach in report.breaches} == {trajectory.id, None}


def test_a_changed_output_of_a_program_is_found_by_running_it_again(
    scripted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Record, observation and tokens all say 4 where the program printed 3."""
    monkeypatch.setattr(recheck, "SLOW_CALL_S", 20.0)  # on a loaded machine any call may be slow
    run = copy_run(scripted, tmp_path)
    store = GroupStore(run)
    group = store.load(0)
    first, *others = group.trajectories
    program, answer = first.turns
    [record], [observation] = program.tool_records, program.observations
    changed = record.observation.replace("3", "4")
    program = replace(
        program,
        tool_records=(replace(record, observation=changed),),
        observations=(replace(observation, content=(TextPart(text=changed),)),),
    )
    config = load_config([RECIPES / "retool" / "tiny.toml"], SMALL)
    renderer = build_system(config).renderer
    context_ids = renderer.extend(program.context_ids, program.completion.token_ids, program.observations, ())
    assert (context_ids != answer.context_ids).sum() == 1
    forged = replace(first, turns=(program, replace(answer, context_ids=context_ids)))
    note_digest(run, 0, store.save(replace(group, trajectories=(forged, *others)), None))
    # The ledger has digests of other tokens, and the answer has other probabilities after them.
    assert found_by(audit_run(run)) == {"ledger", "logprobs"}
    report = audit_run(run, replay_tools=True)
    [breach] = report.tallies["tools"].breaches
    assert breach.trajectory == first.id
    assert "gives '3" in breach.text
    assert "on record is '4" in breach.text
    assert found_by(report) == {"ledger", "logprobs", "tools"}


# ------------------------------------------------------------------- replies held to a grammar


@pytest.fixture(scope="module")
def guided(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One step and two evaluations."""
    pytest.importorskip("llguidance")
    return train(
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
        "train.steps=1",
    )


def test_a_run_may_hold_replies_to_a_grammar(guided: Path) -> None:
    """The parity gate passed, so the trainer gave the sampled tokens the probabilities they have without the grammar;
    the audit finds the same."""
    replies = [turn.completion for t in GroupStore(guided).load(0).trajectories for turn in t.turns]
    gaps = np.concatenate([r.logprobs - r.full_logprobs for r in replies if r.full_logprobs is not None])
    [account] = load_accounts(guided)
    assert len(gaps) == account.sampled
    assert gaps.min() >= 0
    assert gaps.max() > 1e-3, "the grammar took something away"
    report = audit_run(guided)
    assert report.breaches == []
    assert report.tallies["logprobs"].checked == len(gaps)


def test_an_evaluation_may_hold_replies_to_a_grammar(guided: Path) -> None:
    groups = load_groups(guided / "evaluations", "heldout_000001")
    replies = [turn.completion for group in groups for t in group.trajectories for turn in t.turns]
    assert len(replies) >= 2
    assert all(r.full_logprobs is not None and (r.logprobs >= r.full_logprobs).all() for r in replies)


@pytest.mark.parametrize(("name", "checks"), [("full_logprobs", {"ledger", "logprobs"}), ("logprobs", {"ledger"})])
def test_both_log_probabilities_of_a_guided_token_are_proven(
    guided: Path, tmp_path: Path, name: str, checks: set[str]
) -> None:
    """What the sampler drew from has no second witness: only the ledger's digest can tell."""

    def change(arrays: dict[str, np.ndarray]) -> None:
        at = next(i for i in np.flatnonzero(arrays["loss_mask"]) if arrays["logprobs"][i] < -1)
        arrays[name][at] += 0.25 if name == "logprobs" else -0.25

    run = copy_run(guided, tmp_path)
    rewrite_arrays(run, 0, change)
    assert found_by(audit_run(run)) == checks
