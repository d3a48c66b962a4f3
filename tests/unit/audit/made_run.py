"""A run made by hand: a tool that doubles, one token per character, and weights that are a number.

Seven draws of two members, staleness 1. Step 1 takes draws 1 and 0, step 2 draws 3 and 4. Draw 2 was dropped because it
teaches nothing, draw 5 waits, draw 6 is open, draw 7 was dropped before anything of it was stored. Draw 0 has an
over-drawn member, one reply of draw 3 was sampled by versions 0 and 1, draw 4 has an attempt that was made again and a
baseline.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turnwise.audit.materials import AuditMaterials
from turnwise.batching.samples import to_samples
from turnwise.building.audited import read_audit_settings
from turnwise.building.resolved import resolve
from turnwise.config.load import dump_resolved, load_config
from turnwise.config.run import RunConfig
from turnwise.core.protocols import Environment, ScriptedPolicy, Split
from turnwise.core.seeds import derive_seed
from turnwise.core.types import (
    Completion,
    Discarded,
    Draw,
    DropReason,
    FinishReason,
    IntArray,
    Invalid,
    Message,
    Reward,
    RewardPart,
    Sample,
    Scored,
    StopReason,
    Task,
    TextPart,
    ToolCall,
    ToolSpec,
    Trajectory,
    TrajectoryGroup,
    TrajectoryId,
    Turn,
    text_message,
    to_floats,
    to_ids,
)
from turnwise.credit.assignment import compute_advantages, to_credit_trajectories
from turnwise.environments.tool_environment import ToolEnvironment
from turnwise.pictures.store import PictureStore
from turnwise.store.advantages import save_advantages
from turnwise.store.checkpoint_folder import checkpoint_writer
from turnwise.store.groups import GroupStore
from turnwise.store.journal import DrawRecord, Journal
from turnwise.store.ledger import account_batch, account_dropped, append_accounts
from turnwise.store.run_folder import RunFolder

TINY = Path(__file__).parents[3] / "recipes" / "search_r1" / "tiny.toml"

Answer = Callable[[int], int]


def make_task(index: int) -> Task:
    return Task(
        environment="adder", prompt=(text_message("user", f"add {index}"),), payload={"index": index, "worth": 1.0}
    )


class Adder(ToolEnvironment):
    """One tool, which `answer` decides. The opening shows the seed."""

    def __init__(self, answer: Answer) -> None:
        super().__init__()
        self._answer = answer
        self._worth = 0.0

    async def setup(self, task: Task, seed: int) -> tuple[Sequence[Message], Sequence[Callable[..., object]]]:
        self._worth = task.payload["worth"]
        return (*task.prompt, text_message("user", f" {seed % 1000:03d}")), (self.add,)

    def add(self, number: int) -> int:
        """Add.

        Args:
            number: A number.
        """
        return self._answer(number)

    async def score(self, replies: Sequence[Message], stop: StopReason) -> Reward:
        calls = len(self.tool_records)
        return Scored(total=self._worth * calls, parts=(RewardPart(name="calls", value=float(calls)),))


class AdderFamily:
    """Environments of one `answer`; their rewards follow from records where `from_records`."""

    def __init__(self, answer: Answer, *, from_records: bool = False) -> None:
        self._answer = answer
        self._from_records = from_records

    def task(self, split: Split, index: int) -> Task:
        return make_task(index)

    def build_environment(self, task: Task) -> Environment:
        environment = Adder(self._answer)
        if self._from_records:
            environment.scores_from_records = True  # type: ignore[attr-defined]
        return environment

    def policy(self, name: str) -> ScriptedPolicy:
        raise NotImplementedError

    def texts(self, count: int) -> Sequence[str]:
        return []


class CharRenderer:
    """One token per character; a reply is `call:number` or an answer."""

    stop_token_ids: tuple[int, ...] = ()
    stop: tuple[str, ...] = ()

    def open(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> IntArray:
        return encode("".join(message.text for message in messages))

    def extend(
        self, prompt_ids: IntArray, completion_ids: IntArray, observations: Sequence[Message], tools: Sequence[ToolSpec]
    ) -> IntArray:
        return encode("".join(message.text for message in observations))

    def parse(self, prompt_ids: IntArray, completion_ids: IntArray, tools: Sequence[ToolSpec] = ()) -> Message:
        text = "".join(map(chr, completion_ids.tolist()))
        name, colon, number = text.partition(":")
        calls = (
            (ToolCall(id=f"call_{len(prompt_ids)}", name=name, arguments=f'{{"number": {number}}}'),) if colon else ()
        )
        return Message(role="assistant", content=(TextPart(text=text),), tool_calls=calls)

    def encode_reply(self, message: Message) -> IntArray:
        return encode(message.text)


def encode(text: str) -> IntArray:
    return to_ids([ord(character) for character in text])


def double(number: int) -> int:
    return 2 * number


def compute_logprobs(token_ids: NDArray[Any], versions: NDArray[Any] | int) -> NDArray[np.float64]:
    """What "weights" of a version give a token: the same number every time, another for other weights or tokens."""
    return -0.25 * (1 + (np.asarray(token_ids) * 31 + np.asarray(versions) * 17) % 13)


def sample(text: str, versions: Sequence[int]) -> Completion:
    """A completion whose tokens are of these versions, spelled out where they are several."""
    ids, each = encode(text), np.resize(np.sort(versions), len(text))
    each.sort()
    return Completion(
        token_ids=ids,
        logprobs=to_floats(compute_logprobs(ids, each)),
        finish_reason=FinishReason.STOP,
        version_first=int(each[0]),
        version_last=int(each[-1]),
        versions=to_ids(each) if len(set(versions)) > 1 else None,
    )


def play(
    answer: Answer,
    replies: Sequence[str] = ("add:1", "add:2", "done"),
    *,
    draw: Draw | None = None,
    member: int = 0,
    attempt: int = 0,
    versions: Sequence[int] = (0,),
    seed: int = 0,
) -> Trajectory:
    """What a rollout of these replies records."""
    draw = draw or Draw(index=0, task=make_task(0))

    async def run() -> Trajectory:
        environment, renderer = AdderFamily(answer).build_environment(draw.task), CharRenderer()
        opening = await environment.reset(draw.task, seed)
        context = prompt = renderer.open(opening.messages, opening.tools)
        turns: list[Turn] = []
        for number, text in enumerate(replies):
            completion = sample(text, versions)
            message = renderer.parse(prompt, completion.token_ids)
            result = await environment.step(message)
            turns.append(
                Turn(
                    parent=number - 1 if number else None,
                    context_ids=context,
                    completion=completion,
                    message=message,
                    observations=result.observations,
                    tool_records=result.tool_records,
                )
            )
            context = renderer.extend(prompt, completion.token_ids, result.observations, opening.tools)
            prompt = to_ids(np.concatenate([prompt, completion.token_ids, context]))
        reward = await environment.score([turn.message for turn in turns], StopReason.DONE)
        await environment.close()
        return Trajectory(
            id=TrajectoryId(draw=draw.index, member=member, attempt=attempt),
            task_id=draw.task.id,
            turns=tuple(turns),
            stop=StopReason.DONE,
            reward=reward,
        )

    return asyncio.run(run())


def make_config() -> RunConfig:
    return load_config([TINY], ["rollout.group_size=2", "run.seed=5"])


def make_materials(config: RunConfig) -> AuditMaterials:
    def score(checkpoint: Path, samples: Sequence[Sample]) -> list[NDArray[Any]]:
        version = read_weights(checkpoint)
        return [compute_logprobs(each.token_ids[each.loss_mask], version) for each in samples]

    return AuditMaterials(
        settings=read_audit_settings(config),
        family=AdderFamily(double, from_records=True),
        pictures=PictureStore(None),
        renderer=CharRenderer(),
        score=score,
        score_exact=score,
        sum_weights=lambda checkpoint: {"weight": read_weights(checkpoint)},
        num_started=3,
        max_staleness=1,
        cuts_late=False,
    )


def read_weights(checkpoint: Path) -> int:
    return int(json.loads((checkpoint / "weights.json").read_text()))


def save_checkpoint(run: Path, step: int, weights: int) -> None:
    with checkpoint_writer(run, step) as folder:
        (folder / "weights.json").write_text(json.dumps(weights))


SHORT, LONG = ("add:1", "done"), ("add:1", "add:2", "done")


def make_group(
    config: RunConfig, index: int, *members: Sequence[str], version: int, versions: Sequence[int]
) -> TrajectoryGroup:
    """A group whose members gave these replies."""
    draw = Draw(index=index, task=make_task(index))
    seed = derive_seed(derive_seed(config.run.seed, "rollout"), "environment", index, draw.task.id)
    trajectories = tuple(
        play(double, replies, draw=draw, member=member, versions=versions, seed=seed)
        for member, replies in enumerate(members)
    )
    return TrajectoryGroup(draw=draw, trajectories=trajectories, version=version)


def make_groups(config: RunConfig) -> dict[int, TrajectoryGroup]:
    """The groups that finished, by draw."""
    groups = {
        0: make_group(config, 0, SHORT, ("no",), LONG, version=0, versions=[0]),
        1: make_group(config, 1, LONG, SHORT, version=0, versions=[0]),
        2: make_group(config, 2, SHORT, SHORT, version=0, versions=[0]),
        3: make_group(config, 3, SHORT, LONG, version=0, versions=[0, 1]),
        4: make_group(config, 4, LONG, ("no",), SHORT, version=1, versions=[1]),
        5: make_group(config, 5, LONG, SHORT, version=1, versions=[1]),
    }
    first, overdrawn, third = groups[0].trajectories
    groups[0] = replace(
        groups[0],
        trajectories=(first, third),
        discarded=(Discarded(trajectory=overdrawn, reason=DropReason.OVERDRAWN),),
    )
    first, failed, baseline = groups[4].trajectories
    hung = Invalid(reason="hung", retryable=True)
    second = replace(baseline, id=replace(failed.id, attempt=1))
    groups[4] = replace(
        groups[4],
        trajectories=(first, second),
        baseline=replace(baseline, id=replace(baseline.id, member=2)),
        discarded=(Discarded(trajectory=replace(failed, reward=hung), reason=DropReason.RETRIED),),
    )
    return groups


def make_run(path: Path) -> Path:
    """The run described above, written in the order in which a run writes."""
    config = make_config()
    folder = RunFolder.create(path)
    folder.write_json("config.json", dump_resolved(config))
    store, journal, groups = GroupStore(path), Journal(path), make_groups(config)

    def finish(*draws: int) -> None:
        for draw in draws:
            journal.opened(DrawRecord(draw=draw, task_index=draw, version=groups[draw].version))
        for draw in reversed(draws):
            journal.finished(draw, store.save(groups[draw], lambda ids: "".join(map(chr, ids))))

    save_checkpoint(path, 0, 0)
    finish(0, 1, 2, 3)
    train(folder, journal, config, step=1, groups=[groups[1], groups[0]])
    journal.dropped(2, DropReason.FILTERED_GROUP, step=2)
    append_accounts(path, [account_dropped(groups[2], DropReason.FILTERED_GROUP, step=2, version=1)])
    finish(4, 5)
    for draw in (6, 7):
        journal.opened(DrawRecord(draw=draw, task_index=draw, version=1))
    journal.dropped(7, DropReason.LATE, step=2)
    train(folder, journal, config, step=2, groups=[groups[3], groups[4]], dropped=groups[2])
    journal.close()
    return path


def train(
    folder: RunFolder,
    journal: Journal,
    config: RunConfig,
    *,
    step: int,
    groups: Sequence[TrajectoryGroup],
    dropped: TrajectoryGroup | None = None,
) -> None:
    """One step that changes the weights from `step - 1` to `step`."""
    journal.taken(step, [group.draw.index for group in groups])
    credit = compute_advantages(resolve(config).build_credit(), groups, to_credit_trajectories(groups))
    members = {t.id: t for group in groups for t in group.trajectories}
    samples = [each for name, turns in credit.items() for each in to_samples(members[name], turns)]
    accounts = account_batch(groups, [samples], step=step, version=step - 1, max_staleness=1)
    append_accounts(folder.path, accounts)
    save_advantages(folder.path, step, {name: [to_floats(turn) for turn in turns] for name, turns in credit.items()})
    journal.trained(step, version=step, sums={"weight": step})
    save_checkpoint(folder.path, step, step)
    sampled = [account.sampled for account in accounts]
    if dropped is not None:
        sampled.append(sum(t.num_sampled_tokens for t in dropped.trajectories))
    folder.append_metrics(
        step,
        "train",
        {
            "rollout/sampled_tokens": sum(sampled),
            "train/trained_tokens": sum(account.trained for account in accounts),
        },
    )
