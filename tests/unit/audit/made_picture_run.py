"""A run with pictures, made by hand: a page of four columns, and a tool that cuts one of them out.

One token per character, and one place per two columns of a picture: the page has 2 places, a cut column 1. Step 1 takes
draws 0 and 1, of two members each.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from made_run import (
    AdderFamily,
    CharRenderer,
    compute_logprobs,
    double,
    encode,
    make_config,
    make_materials,
    read_weights,
    sample,
    save_checkpoint,
    train,
)
from numpy.typing import NDArray

from turnwise.audit.materials import AuditMaterials
from turnwise.audit.pictures import FixedPictures
from turnwise.config.load import dump_resolved
from turnwise.core.keys import Span
from turnwise.core.messages import ImagePart, TextPart
from turnwise.core.pictures import Pictures
from turnwise.core.protocols import Environment, Opening, StepResult
from turnwise.core.seeds import derive_seed
from turnwise.core.types import (
    Draw,
    IntArray,
    Message,
    Prompt,
    Reward,
    Sample,
    Scored,
    StopReason,
    Task,
    ToolRecord,
    ToolSpec,
    Trajectory,
    TrajectoryGroup,
    TrajectoryId,
    to_floats,
    to_ids,
)
from turnwise.pictures.crop import crop
from turnwise.pictures.pixels import to_part
from turnwise.pictures.store import FOLDER, PictureStore
from turnwise.rendering.images import PICTURE, PictureRenderer, write_text
from turnwise.rollout.conversation import Conversation
from turnwise.store.groups import GroupStore
from turnwise.store.journal import DrawRecord, Journal
from turnwise.store.run_folder import RunFolder

PLACE = 1
"""The id of every place of a picture."""


def make_page(index: int) -> ImagePart:
    """A page, 4 x 2 pixels, each column of one grey."""
    columns = np.array([10, 60, 110, 160], np.uint8) + index
    return to_part(np.broadcast_to(columns[None, :, None], (2, 4, 3)).copy(), label="a page")


def make_task(index: int) -> Task:
    prompt = Message(role="user", content=(TextPart(text=f"read {index} "), make_page(index)))
    return Task(environment="pages", prompt=(prompt,), payload={"index": index})


class Pages:
    """Implements `Environment`: `zoom:COLUMN` answers with that column, any other reply ends the episode."""

    scores_from_records = True

    def __init__(self) -> None:
        self.tool_records: list[ToolRecord] = []

    async def reset(self, task: Task, seed: int) -> Opening:
        self._page = make_page(task.payload["index"])
        return Opening(messages=task.prompt, tools=())

    async def step(self, message: Message) -> StepResult:
        if not message.tool_calls:
            return StepResult(observations=(), done=True)
        [call] = message.tool_calls
        column = int(message.text.partition(":")[2])
        cut = crop(self._page, (column, 0, column + 1, 2))
        answer = Message(role="tool", content=(TextPart(text="see "), cut), tool_call_id=call.id, name="zoom")
        record = ToolRecord(call=call, observation="see ", content=answer.content, error=None, seconds=0.0)
        self.tool_records.append(record)
        return StepResult(observations=(answer,), done=False, tool_records=(record,))

    async def score(self, replies: Sequence[Message], stop: StopReason) -> Reward:
        return Scored(total=float(len(self.tool_records)))

    async def close(self) -> None:
        pass


class PagesFamily(AdderFamily):
    def build_environment(self, task: Task) -> Environment:
        return Pages()


class _Marked(CharRenderer):
    """Writes one character for each picture."""

    def open(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> IntArray:
        return encode("".join(map(write_text, messages)))

    def extend(
        self, prompt_ids: IntArray, completion_ids: IntArray, observations: Sequence[Message], tools: Sequence[ToolSpec]
    ) -> IntArray:
        return encode("".join(map(write_text, observations)))


class Layout:
    """Implements `PictureLayout`: one place per two columns, rounded up."""

    marker, marker_id = PICTURE, ord(PICTURE)

    def lay_out(self, part: ImagePart) -> Prompt:
        count = (part.width + 1) // 2
        return Prompt(
            token_ids=to_ids([PLACE] * count), images=(Span(start=0, length=count, digest=part.digest, grid=None),)
        )


def build_renderer(pictures: Pictures) -> PictureRenderer:
    return PictureRenderer(_Marked(), Layout(), pictures)


def play(pictures: Pictures, draw: Draw, member: int, replies: Sequence[str], seed: int) -> Trajectory:
    """What a rollout of these replies records."""

    async def run() -> Trajectory:
        environment, conversation = Pages(), Conversation(renderer=build_renderer(pictures))
        opening = await environment.reset(draw.task, seed)
        conversation.open(opening.messages, opening.tools)
        for text in replies:
            completion = sample(text, [0])
            logprobs = see_logprobs(completion.token_ids, 0, [span.digest for span in conversation.images])
            message = conversation.reply(replace(completion, logprobs=to_floats(logprobs)))
            result = await environment.step(message)
            conversation.turns[-1] = replace(conversation.turns[-1], tool_records=result.tool_records)
            if not result.done:
                conversation.go_on(result.observations)
        return Trajectory(
            id=TrajectoryId(draw=draw.index, member=member),
            task_id=draw.task.id,
            turns=tuple(conversation.turns),
            stop=StopReason.DONE,
            reward=await environment.score([], StopReason.DONE),
        )

    return asyncio.run(run())


def see_logprobs(token_ids: NDArray[Any], version: int, digests: Sequence[str]) -> NDArray[np.float64]:
    """What "weights" of a version give tokens after these pictures."""
    seen = sum(int(digest[:4], 16) for digest in digests)
    return compute_logprobs(token_ids + seen, version)


def score_sample(version: int, sampled: Sample) -> NDArray[np.float64]:
    """The same for a sample, token by token: each after the pictures before it."""
    return np.array(
        [
            see_logprobs(sampled.token_ids[at], version, [s.digest for s in sampled.images if s.start < at])
            for at in np.flatnonzero(sampled.loss_mask)
        ]
    )


def make_picture_materials(run: Path) -> AuditMaterials:
    def score(checkpoint: Path, samples: Sequence[Sample]) -> list[NDArray[Any]]:
        return [score_sample(read_weights(checkpoint), each) for each in samples]

    pictures = FixedPictures(PictureStore(run / FOLDER))
    return replace(
        make_materials(make_config()),
        family=PagesFamily(double),
        pictures=pictures,
        renderer=build_renderer(pictures),
        score=score,
        score_exact=score,
        num_started=2,
    )


def make_picture_run(path: Path) -> Path:
    """The run described above."""
    config = make_config()
    folder = RunFolder.create(path)
    folder.write_json("config.json", dump_resolved(config))
    store, journal, pictures = GroupStore(path), Journal(path), PictureStore(path / FOLDER)
    save_checkpoint(path, 0, 0)
    groups = []
    for index in range(2):
        draw = Draw(index=index, task=make_task(index))
        seed = derive_seed(derive_seed(config.run.seed, "rollout"), "environment", index, draw.task.id)
        members = (("zoom:1", "zoom:2", "done"), ("zoom:3", "done"))
        group = TrajectoryGroup(
            draw=draw,
            trajectories=tuple(play(pictures, draw, member, said, seed) for member, said in enumerate(members)),
        )
        journal.opened(DrawRecord(draw=index, task_index=index, version=0))
        journal.finished(index, store.save(group, lambda ids: "".join(map(chr, ids))))
        groups.append(group)
    train(folder, journal, config, step=1, groups=groups)
    journal.close()
    return path
