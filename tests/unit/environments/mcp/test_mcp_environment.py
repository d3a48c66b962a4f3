"""Tasks over servers' tools, played against real server processes."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

pytest.importorskip("mcp")

from turnwise.core.errors import ConfigError, DataError, EnvironmentFault, ToolTimeout
from turnwise.core.types import Message, Reward, Scored, StopReason, TextPart, ToolCall, ToolRecord
from turnwise.environments.mcp.environment import McpEnvironment
from turnwise.environments.mcp.family import McpTasks
from turnwise.environments.replies import answer_message as answer
from turnwise.pictures.pixels import to_part, to_png

SERVER = Path(__file__).parents[2] / "tools" / "mcp" / "hostile_server.py"
EXAMPLE = Path(__file__).parents[4] / "recipes" / "mcp" / "server.py"
ROWS = [{"question": "say hello", "answer": "hello", "calls": [["echo", {"text": "hello"}]]}]


def write_rows(folder: Path, rows: Sequence[Any]) -> dict[str, str]:
    path = folder / "rows.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return {"train_path": str(path), "heldout_path": str(path)}


def build(folder: Path, mode: str = "fine", rows: Sequence[Any] = ROWS, **arguments: Any) -> McpTasks:
    servers = {"hostile": {"command": "python", "args": ["-S", str(SERVER), mode]}}
    return McpTasks(**{"servers": servers, **write_rows(folder, rows), **arguments})


def call(name: str, **arguments: Any) -> Message:
    made = ToolCall(id="c", name=name, arguments=json.dumps(arguments))
    return Message(role="assistant", content=(), tool_calls=(made,))


async def play(family: McpTasks, *replies: Message, index: int = 0) -> tuple[list[str], Reward]:
    """What the tools answered, and the reward."""
    task = family.task("heldout", index)
    environment = family.build_environment(task)
    try:
        await environment.reset(task, 0)
        texts = [o.text for reply in replies for o in (await environment.step(reply)).observations]
        return texts, await environment.score(replies, StopReason.DONE)
    finally:
        await environment.close()


def reward_of(family: McpTasks, *replies: Message) -> Reward:
    return asyncio.run(play(family, *replies))[1]


def test_the_oracle_succeeds_and_random_calls_do_not(tmp_path: Path):
    async def success(name: str) -> float:
        family = build(tmp_path, scope="run")
        task = family.task("heldout", 0)
        environment, policy = family.build_environment(task), family.policy(name)
        messages = list((await environment.reset(task, 0)).messages)
        replies = []
        for _ in range(3):
            replies.append(policy.reply(task, messages, Random(0)))
            result = await environment.step(replies[-1])
            messages += [replies[-1], *result.observations]
            if result.done:
                break
        reward = await environment.score(replies, StopReason.DONE)
        await environment.close()
        assert isinstance(reward, Scored)
        return reward.part("success") or 0.0

    assert asyncio.run(success("oracle")) == 1.0
    assert asyncio.run(success("naive")) == 1.0  # the row has one call, whose answer it repeats


def test_the_model_sees_the_servers_tools_without_what_the_row_fills_in(tmp_path: Path):
    async def opening(rows: Sequence[Any], **arguments: Any) -> dict[str, Any]:
        family = build(tmp_path, rows=rows, **arguments)
        environment = family.build_environment(family.task("heldout", 0))
        shown = await environment.reset(family.task("heldout", 0), 0)
        await environment.close()
        return {tool.name: tool.parameters["properties"] for tool in shown.tools}

    assert asyncio.run(opening(ROWS)) == {"echo": {"text": {"type": "string"}}, "pid": {}}
    assert asyncio.run(opening([{**ROWS[0], "bind": {"text": "x"}}])) == {"echo": {}, "pid": {}}
    assert list(asyncio.run(opening(ROWS, tools=["pid"]))) == ["pid"]
    assert list(asyncio.run(opening(ROWS, reward="tool", check_tool="pid"))) == ["echo"]
    with pytest.raises(ConfigError, match="tools includes 'saw', which no server has; choose from echo, pid"):
        asyncio.run(opening(ROWS, tools=["saw"]))


def test_tools_of_one_name_at_two_servers_can_both_be_meant(tmp_path: Path):
    args = {"command": "python", "args": ["-S", str(SERVER), "fine"]}

    async def shown(rows: Sequence[Any] = ROWS, **arguments: Any) -> list[str]:
        family = build(tmp_path, rows=rows, servers={"a": args, "b": args}, **arguments)
        environment = family.build_environment(family.task("heldout", 0))
        try:
            return [tool.name for tool in (await environment.reset(family.task("heldout", 0), 0)).tools]
        finally:
            await environment.close()

    assert asyncio.run(shown(tools=["echo", "b_pid"])) == ["echo", "b_pid"]
    rows = [{**ROWS[0], "setup": [["b_echo", {"text": "x"}]]}]
    assert asyncio.run(shown(rows, reward="tool", check_tool="pid")) == ["echo", "b_echo", "b_pid"]
    with pytest.raises(ConfigError, match="tools includes 'saw', which no server has; choose from echo, pid, b_echo"):
        asyncio.run(shown(tools=["saw"]))


def test_a_filled_in_parameter_reaches_the_server(tmp_path: Path):
    family = build(tmp_path, rows=[{**ROWS[0], "bind": {"text": "hidden"}}])
    texts, _ = asyncio.run(play(family, call("echo")))
    assert texts == ["hidden"]
    texts, _ = asyncio.run(play(family, call("echo", text="mine")))
    assert texts == ["error: echo takes no arguments; unknown: text"]


@pytest.mark.parametrize(("scope", "num_processes"), [("episode", 2), ("run", 1)])
def test_the_scope_decides_how_many_servers_run(tmp_path: Path, scope: str, num_processes: int):
    async def pids() -> set[str]:
        family = build(tmp_path, scope=scope)
        played = await asyncio.gather(*(play(family, call("pid")) for _ in range(2)))
        return {texts[0] for texts, _ in played}

    assert len(asyncio.run(pids())) == num_processes


def test_a_shared_server_that_died_is_started_again_for_the_next_episode(tmp_path: Path):
    async def run() -> tuple[str, str]:
        family = build(tmp_path, "dies", scope="run")
        (first,), _ = await play(family, call("pid"))
        with pytest.raises(EnvironmentFault, match=r"exited \(exit status 3\); stderr: out of luck"):
            await play(family, call("echo", text="a"))
        (second,), _ = await play(family, call("pid"))
        return first, second

    first, second = asyncio.run(run())
    assert first != second


@pytest.mark.parametrize(
    ("mode", "error", "message"),
    [("hangs", ToolTimeout, r"'echo' ran longer than 0.5 s"), ("protocol_error", EnvironmentFault, "disk full")],
)
def test_a_shared_server_that_hangs_or_fails_is_replaced(
    tmp_path: Path, mode: str, error: type[Exception], message: str
):
    async def run() -> tuple[str, str]:
        family = build(tmp_path, mode, scope="run", tool_timeout_s=0.5)
        (first,), _ = await play(family, call("pid"))
        with pytest.raises(error, match=message):
            await play(family, call("echo", text="a"))
        (second,), _ = await play(family, call("pid"))
        return first, second

    first, second = asyncio.run(run())
    assert first != second


def test_a_result_of_ten_megabytes_is_cut(tmp_path: Path):
    texts, _ = asyncio.run(play(build(tmp_path, "floods", max_observation_chars=50), call("echo", text="a")))
    assert texts == ["x" * 50 + " [... 9999950 characters cut]"]


def test_what_a_tool_refuses_is_an_observation(tmp_path: Path):
    texts, _ = asyncio.run(play(build(tmp_path, "is_error"), call("echo", text="a"), call("saw")))
    assert texts == ["error: no such file", "error: there is no tool 'saw'; known tools: echo, pid"]


def thrift(row: dict[str, Any], replies: Sequence[Message], records: Sequence[ToolRecord]) -> float:
    """A reward of one's own."""
    return float(row["answer"] in replies[-1].text) - 0.25 * len(records)


def test_rewards(tmp_path: Path):
    rows = [{"question": "q", "answer": ["big dog", "hound"], "check": {"text": "0.5"}}]

    def total(*replies: Message, rows: Sequence[Any] = rows, **arguments: Any) -> tuple[float, float | None]:
        reward = reward_of(build(tmp_path, rows=rows, **arguments), *replies)
        assert isinstance(reward, Scored)
        return reward.total, reward.part("success")

    assert total(answer("The Big dog.")) == (1.0, 1.0)
    assert total(answer("big cat")) == (0.0, 0.0)
    # one of two words on each side: precision 1/2, recall 1/2, F1 1/2
    assert total(answer("big cat"), reward="f1") == (0.5, 0.0)
    assert total(answer("hound"), reward="tool", check_tool="echo") == (0.5, 1.0)
    open_rows = [{"question": "q", "check": {"text": "true"}}]
    assert total(answer("x"), rows=open_rows, reward="tool", check_tool="echo") == (1.0, 1.0)
    own = f"{__name__}:thrift"
    assert total(call("pid"), answer("hello"), rows=ROWS, reward=own) == (0.75, 1.0)  # 1 - 0.25 * 1


def test_a_judge_that_gives_no_number_is_a_fault(tmp_path: Path):
    rows = [{"question": "q", "check": {"text": "well done"}}]
    with pytest.raises(EnvironmentFault, match="answered 'well done', which is not a finite number"):
        reward_of(build(tmp_path, rows=rows, reward="tool", check_tool="echo"), answer("x"))


@pytest.mark.parametrize(
    ("mode", "setup", "error", "message"),
    [
        (
            "fine",
            [["saw", {}]],
            ConfigError,
            "setup is the tool 'saw', which no server has; use one of echo, pid",
        ),
        ("is_error", [["echo", {"text": "a"}]], EnvironmentFault, "setup: tool 'echo' refused .*no such file"),
        (
            "hangs",
            [["echo", {"text": "a"}]],
            ToolTimeout,
            r"setup: tool 'echo' of server 'hostile' ran longer than 0.5 s",
        ),
    ],
)
def test_a_setup_that_fails_says_why(tmp_path: Path, mode: str, setup: list[Any], error: type[Exception], message: str):
    family = build(tmp_path, mode, rows=[{**ROWS[0], "setup": setup}], tool_timeout_s=0.5)
    with pytest.raises(error, match=message):
        asyncio.run(play(family))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("{", "rows.jsonl:2: not JSON"),
        ('{"answer": "a"}', "rows.jsonl:2: question: Field required"),
        ('{"question": "a", "answer": 7}', r"rows.jsonl:2: answer\.str"),
        ('{"question": "a"}', "rows.jsonl:2: no answer, which the reward needs"),
        ('{"question": "a", "answer": "b", "calls": [["echo"]]}', "rows.jsonl:2: "),
        ('{"question": "a", "answer": "b", "hint": 1}', "rows.jsonl:2: hint: Extra inputs are not permitted"),
    ],
)
def test_a_wrong_row_names_file_and_line(tmp_path: Path, row: str, message: str):
    paths = write_rows(tmp_path, ROWS)
    Path(paths["train_path"]).write_text(json.dumps(ROWS[0]) + "\n" + row + "\n")
    with pytest.raises(DataError, match=message):
        McpTasks(servers={"s": {"command": "python"}}, **paths)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"servers": {}}, "has no MCP server"),
        ({"servers": {"s": {}}}, "needs either command or url"),
        ({"servers": {"s": {"command": "no_such_program"}}}, "is not an executable program"),
        ({"reward": "tool"}, "check_tool to the name of the judging tool with reward='tool'"),
        ({"check_tool": "pid"}, "check_tool to the name of the judging tool with reward='tool'"),
        ({"reward": "bleu"}, "neither one of exact_match, f1, tool"),
        ({"reward": "json:nothing"}, "json has no .nothing."),
        (
            {"reward": "statistics:mean"},
            r"reward='statistics:mean' cannot be called with \(row, replies, tool records\)",
        ),
        ({"prompt": "hello"}, "lacks {question}"),
        ({"train_path": ""}, "set it to the path of a JSONL file"),
        ({"scop": "run"}, "did you mean 'scope'"),
    ],
)
def test_wrong_arguments_are_refused(tmp_path: Path, arguments: dict[str, Any], message: str):
    with pytest.raises(ConfigError, match=message):
        build(tmp_path, **arguments)


def test_equal_states_have_equal_hashes(tmp_path: Path):
    async def states() -> list[str]:
        family = build(tmp_path, scope="run")
        hashes = []
        for text in ("a", "a", "b"):
            environment = family.build_environment(family.task("heldout", 0))
            assert isinstance(environment, McpEnvironment)
            await environment.reset(family.task("heldout", 0), 0)
            await environment.step(call("echo", text=text))
            hashes.append(environment.state_hash())
            await environment.close()
        return hashes

    first, second, other = asyncio.run(states())
    assert first == second != other


def test_a_tokenizer_sees_what_the_tools_answer(tmp_path: Path):
    rows = [{**ROWS[0], "calls": [["echo", {"text": "unforeseen"}]]}]
    texts = build(tmp_path, rows=rows, scope="run").texts(40)
    assert len(texts) == 40
    assert " unforeseen" in texts  # what the tool answered, not only the call's argument
    assert " echo text = unforeseen" in texts
    assert "say hello" in texts


def test_the_example_server_answers_as_its_rows_say(tmp_path: Path):
    import importlib.util

    spec = importlib.util.spec_from_file_location("mcp_server", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    rows = [module.build_row(f"test {index}") for index in range(20)]
    servers = {"storehouse": {"command": "python", "args": [str(EXAMPLE)]}}
    family = McpTasks(servers=servers, scope="run", **write_rows(tmp_path, rows))

    async def run() -> None:
        for index, row in enumerate(rows):
            replies = [call(name, **arguments) for name, arguments in row["calls"]]
            texts, reward = await play(family, *replies, answer(row["answer"]), index=index)
            assert texts[-1].split()[-1] == row["answer"]
            assert isinstance(reward, Scored)
            assert reward.total == 1
        texts, _ = await play(family, call("locate", thing="unicorn"))
        assert texts[0].startswith("error: ")

    asyncio.run(run())


def test_images_are_shown_or_named_and_a_damaged_one_fails_the_episode(tmp_path: Path):
    picture = to_part(np.full((2, 3, 3), 10, np.uint8))
    encoded = base64.b64encode(to_png(picture)).decode()

    async def look(data: str, **arguments: Any) -> Message:
        family = build(tmp_path, "paints", **arguments)
        task = family.task("heldout", 0)
        environment = family.build_environment(task)
        try:
            await environment.reset(task, 0)
            return (await environment.step(call("echo", text=data))).observations[0]
        finally:
            await environment.close()

    assert asyncio.run(look(encoded, show_images=True)).content == (TextPart(text="see"), picture)
    assert asyncio.run(look(encoded)).text == f"see\n[image image/png, {len(to_png(picture))} bytes]"
    with pytest.raises(EnvironmentFault) as raised:
        asyncio.run(look(encoded[:-40], show_images=True))
    assert str(raised.value).startswith(
        "image 1 of the result of tool 'echo' of server 'hostile' cannot be decoded; give a whole, undamaged picture"
    )


def test_questions_show_their_pictures(tmp_path: Path):
    parts = [to_part(np.full((2, 3, 3), shade, np.uint8)) for shade in (10, 20)]
    for number, part in enumerate(parts):
        (tmp_path / f"{number}.png").write_bytes(to_png(part))
    rows: list[dict[str, Any]] = [
        {"question": "Is <image> like <image>?", "answer": "no", "images": ["0.png", "1.png"]},
        {"question": "Which?", "answer": "this", "image": "1.png"},
        {"question": "What is <image>?", "answer": "text"},
    ]
    family = build(tmp_path, rows=rows, prompt="Look: {question} Now.")
    texts = [TextPart(text=text) for text in ("Look: Is ", " like ", "? Now.", "Look: ", "Which? Now.")]
    tasks = [family.task("heldout", index) for index in range(3)]
    assert tasks[0].prompt[0].content == (texts[0], parts[0], texts[1], parts[1], texts[2])
    assert tasks[1].prompt[0].content == (texts[3], parts[1], texts[4])
    assert tasks[2].prompt[0].text == "Look: What is <image>? Now."
    assert all(part.pixels is not None for task in tasks for part in task.prompt[0].images)
    json.dumps([dict(task.payload) for task in tasks])
    with pytest.raises(DataError, match=r"rows.jsonl:1: the row has 1 pictures and its prompt 2 times <image>"):
        build(tmp_path, rows=[{**rows[0], "images": ["0.png"]}], max_bad_rows=0)
