"""The family of folders: its tasks, their truth, and what its scripted policies solve."""

import asyncio
from random import Random

import pytest

from turnwise.core.types import Draw, Scored, StopReason, text_message
from turnwise.rendering.calls import CALLS_FORMAT, CallsRenderer
from turnwise.rendering.tokenizer import train_tokenizer
from turnwise.rollout.demonstrate import play_demonstration
from turnwise.testing.folders import KINDS, FolderFamily, read_question, solve
from turnwise_sandbox.errors import SandboxError
from turnwise_sandbox.supervisor import LocalSandbox


def test_truth_is_computed_from_the_files() -> None:
    files = {"a.md": "3\n", "b.md": "4\n", "c.txt": "5\n", "d.csv": "c.txt\n"}
    assert solve("count", "md", files) == "2"
    assert solve("sum", "md", files) == "7"  # 3 + 4
    assert solve("find", "4", files) == "b.md"
    assert solve("follow", "d.csv", files) == "5"


def test_tasks_are_a_function_of_seed_split_and_index() -> None:
    family = FolderFamily()
    tasks = [family.task("train", index) for index in range(60)]
    assert [task.id for task in tasks] == [FolderFamily().task("train", index).id for index in range(60)]
    assert tasks[0].id not in (family.task("heldout", 0).id, FolderFamily(seed=1).task("train", 0).id)
    assert {task.payload["kind"] for task in tasks} == set(KINDS)
    assert {FolderFamily(kinds={"sum": 1}).task("train", index).payload["kind"] for index in range(9)} == {"sum"}
    for task in tasks:
        assert read_question(task.prompt[1].text) == (task.payload["kind"], task.payload["about"])
        assert 4 <= len(task.payload["files"]) <= 7
    with pytest.raises(ValueError, match="is no question"):
        read_question("What is the time?")


def test_the_oracle_solves_every_kind_and_the_shortcuts_few() -> None:
    family = FolderFamily(naive_skill=0.0)
    tokenizer = train_tokenizer(family.texts(400), vocab_size=480, special_tokens=CALLS_FORMAT.special_tokens)
    solved: dict[str, list[float]] = {"oracle": [], "naive": [], "random": []}

    async def play(name: str, index: int) -> None:
        episode = await play_demonstration(
            Draw(index=index, task=(task := family.task("heldout", index))),
            family.policy(name),
            family.build_environment(task),
            CallsRenderer(tokenizer),
            seed=index,
            max_turns=4,
        )
        assert isinstance(episode.reward, Scored), episode.reward
        solved[name].append(episode.reward.total)

    async def play_all() -> None:
        try:
            async with LocalSandbox(num_slots=1):
                pass
        except SandboxError as error:
            pytest.skip(f"nothing isolates code on this machine: {error}")
        for name in solved:
            await asyncio.gather(*(play(name, index) for index in range(24)))

    asyncio.run(play_all())
    assert solved["oracle"] == [1.0] * 24
    assert sum(solved["naive"]) < 8  # by luck: the last file, or the only number
    assert sum(solved["random"]) < 8


def test_only_an_answer_in_words_counts() -> None:
    family = FolderFamily()
    task = family.task("train", 0)
    right = solve(task.payload["kind"], task.payload["about"], task.payload["files"])

    async def judge(*replies: str) -> float:
        folder = family.build_environment(task)
        await folder.reset(task, 0)
        return (await folder.score([text_message("assistant", text) for text in replies], StopReason.DONE)).total

    called = family.policy("oracle").reply(task, task.prompt, Random(0))
    assert called.tool_calls
    scores = [
        asyncio.run(judge(*texts)) for texts in ((right,), (f"<answer> {right} </answer>",), ("x", right), (), ("x",))
    ]
    assert scores == [1.0, 1.0, 1.0, 0.0, 0.0]
