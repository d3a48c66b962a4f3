"""Trajectories as conversations, SFT rows and Inspect logs."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from turnwise.core.protocols import Opening
from turnwise.core.types import (
    ConversationOpening,
    Draw,
    Ending,
    Invalid,
    Message,
    RewardPart,
    Scored,
    StopReason,
    TextPart,
    ToolCall,
    ToolCallError,
    ToolSpec,
    Trajectory,
    TrajectoryGroup,
    Turn,
    text_message,
)
from turnwise.exchange.chat_rows import load_chat_rows
from turnwise.exchange.conversations import Conversation, list_conversations
from turnwise.exchange.inspect_logs import LogFacts, write_inspect_log
from turnwise.exchange.row_files import write_rows
from turnwise.exchange.sft_rows import to_chat_message, to_sft_row
from turnwise.pictures.chat_parts import embed
from turnwise.pictures.pixels import to_part
from turnwise.pictures.read import read_picture
from turnwise.pictures.rows import RowPictures
from turnwise.pictures.store import PictureStore
from turnwise.testing import make_group, make_task, make_trajectory, make_turn

ADD = ToolSpec(
    name="add",
    description="Add two numbers.",
    parameters={"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}},
)
TASK = make_task("2 + 2?", environment="sums", answers=["4"], kind="easy")
CALL = ToolCall(id="call_1", name="add", arguments='{"a": 2, "b": 2}')
ASK = Message(role="assistant", content=(), reasoning="sum it", tool_calls=(CALL,))
TOLD = text_message("tool", "4", tool_call_id="call_1", name="add")


def answered(member: int = 0, **fields: object) -> Trajectory:
    """A call, its answer, and a reply: 3 + 2 and 1 + 1 tokens."""
    return make_trajectory(
        make_turn([1, 2, 3], [4, 5], message=ASK, observations=(TOLD,), engine_s=0.5),
        make_turn([6], [7], parent=0, message=text_message("assistant", "It is 4."), environment_s=0.25),
        member=member,
        task_id=TASK.id,
        **{"reward": Scored(total=1.5, parts=(RewardPart(name="success", value=1.0),)), **fields},  # type: ignore[arg-type]
    )


def openings() -> dict[str, Opening]:
    return {TASK.id: Opening(messages=(text_message("system", "Be brief."), *TASK.prompt), tools=(ADD,))}


def group_of(*trajectories: Trajectory) -> TrajectoryGroup:
    return make_group(*trajectories, task=TASK)


def test_a_conversation_is_the_opening_and_everything_said() -> None:
    [conversation] = list_conversations([group_of(answered())], openings())
    assert [(m.role, m.text) for m in conversation.messages] == [
        ("system", "Be brief."),
        ("user", "2 + 2?"),
        ("assistant", ""),
        ("tool", "4"),
        ("assistant", "It is 4."),
    ]


def test_branches_are_conversations_with_rewards_of_their_own_and_estimates_are_none() -> None:
    def reply(text: str, parent: int | None) -> Turn:
        return make_turn([1], [2], parent=parent, message=text_message("assistant", text))

    trajectory = make_trajectory(
        reply("a", None),
        reply("b", 0),
        reply("c", 0),
        reply("d", 0),
        reward=1.0,
        endings=(
            Ending(turn=2, stop=StopReason.DONE, reward=Scored(total=0.25), kind="leaf"),
            Ending(turn=3, stop=StopReason.DONE, reward=Scored(total=0.5), kind="estimate"),
        ),
    )
    conversations = list(list_conversations([group_of(trajectory)], {}))
    rows = [to_sft_row(each, as_text=False) for each in conversations]
    assert [[m["content"] for m in row["messages"][1:]] for row in rows] == [["a", "b"], ["a", "c"]]
    assert [(row["reward"], row["trajectory"]) for row in rows] == [(1.0, "0/0#0"), (0.25, "0/0#1")]


def test_several_conversations_of_an_episode_open_with_their_own_messages() -> None:
    trajectory = make_trajectory(
        make_turn([1], [2], message=text_message("assistant", "a")),
        make_turn([1], [2], message=text_message("assistant", "b"), conversation=1),
        conversations=(
            ConversationOpening(name="main", messages=(text_message("user", "first"),)),
            ConversationOpening(name="sub", messages=(text_message("user", "second"),), tools=(ADD,)),
        ),
    )
    rows = [to_sft_row(each, as_text=False) for each in list_conversations([group_of(trajectory)], openings())]
    assert [[m["content"] for m in row["messages"]] for row in rows] == [["first", "a"], ["second", "b"]]
    assert ["tools" in row for row in rows] == [False, True]


def test_an_sft_row_has_what_chat_templates_take() -> None:
    [conversation] = list_conversations([group_of(answered())], openings())
    row = to_sft_row(conversation, as_text=False)
    assert row["messages"][2] == {
        "role": "assistant",
        "content": "",
        "reasoning_content": "sum it",
        "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": {"a": 2, "b": 2}}}
        ],
    }
    assert row["messages"][3] == {"role": "tool", "content": "4", "tool_call_id": "call_1", "name": "add"}
    assert row["tools"][0]["function"]["name"] == "add"
    assert {k: row[k] for k in ("reward", "task_id", "trajectory", "stop")} == {
        "reward": 1.5,
        "task_id": TASK.id,
        "trajectory": "0/0#0",
        "stop": "done",
    }


@pytest.mark.parametrize("arguments", ["{not json", "[1]", '"x"', "[" * 100_000])
def test_arguments_that_are_no_object_stay_text(arguments: str) -> None:
    message = Message(role="assistant", content=(), tool_calls=(ToolCall(id="c", name="f", arguments=arguments),))
    row = to_chat_message(message, as_text=False)
    assert row["tool_calls"][0]["function"]["arguments"] == arguments


def test_a_malformed_call_is_text_again() -> None:
    error = ToolCallError(kind="bad_json", raw="<tool_call>{</tool_call>", message="not JSON")
    message = text_message("assistant", "so: ", tool_errors=(error,))
    assert to_chat_message(message, as_text=False)["content"] == "so: <tool_call>{</tool_call>"


def test_sft_rows_in_parquet_have_one_layout(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    plain = make_trajectory(make_turn([1], [2], message=text_message("assistant", "4")), member=1)
    conversations = list_conversations([group_of(answered(), plain)], openings())
    write_rows(tmp_path / "sft.parquet", [to_sft_row(each, as_text=True) for each in conversations])
    first, second = parquet.read_table(tmp_path / "sft.parquet").to_pylist()
    assert first["messages"][2]["tool_calls"][0]["function"]["arguments"] == CALL.arguments
    assert json.loads(first["tools"])[0]["function"]["name"] == "add"
    assert second["messages"][2]["content"] == "4"


def test_chat_templates_take_the_rows() -> None:
    """A template of the Hermes kind, as Qwen's models have it."""
    from transformers.utils.chat_template_utils import render_jinja_template

    template = (
        "{%- for tool in tools %}{{ tool | tojson }}\n{%- endfor %}"
        "{%- for message in messages %}<|{{ message.role }}|>{{ message.content }}"
        "{%- for call in message.tool_calls or [] %}<tool_call>{{ call.function.name }} "
        "{{ call.function.arguments | tojson }}</tool_call>{%- endfor %}{%- endfor %}"
    )
    [conversation] = list_conversations([group_of(answered())], openings())
    row = to_sft_row(conversation, as_text=False)
    [text], _ = render_jinja_template([row["messages"]], tools=row["tools"], chat_template=template)
    assert '<|assistant|><tool_call>add {"a": 2, "b": 2}</tool_call><|tool|>4<|assistant|>It is 4.' in text


def read_log(path: Path, *trajectories: Trajectory) -> Any:
    log = pytest.importorskip("inspect_ai.log")
    facts = LogFacts(
        task="step_000003", run="demo", model="turnwise/demo", created=1.75e9, options={"run": {"seed": 0}}
    )
    write_inspect_log(path, list(list_conversations([group_of(*trajectories)], openings())), facts)
    return log.read_eval_log(str(path))


def test_inspect_reads_messages_calls_scores_and_usage(tmp_path: Path) -> None:
    log = read_log(tmp_path / "a.eval", answered(), answered(member=1, reward=Scored(total=0.5)))
    assert (log.status, log.eval.model, log.eval.task) == ("success", "turnwise/demo", "step_000003")
    first, second = log.samples
    assert [(m.role, m.text) for m in first.messages][2:] == [
        ("assistant", ""),
        ("tool", "4"),
        ("assistant", "It is 4."),
    ]
    [call] = first.messages[2].tool_calls
    assert (call.function, call.arguments, call.parse_error) == ("add", {"a": 2, "b": 2}, None)
    assert first.messages[2].content[0].reasoning == "sum it"
    assert (first.target, first.input[-1].text, first.epoch, second.epoch) == (["4"], "2 + 2?", 1, 2)
    assert {name: score.value for name, score in first.scores.items()} == {"reward": 1.5, "success": 1.0}
    # The first reply sees 3 tokens, the second 3 + 2 + 1; they are 2 and 1 tokens long.
    usage = first.model_usage["turnwise/demo"]
    assert (usage.input_tokens, usage.output_tokens, usage.total_tokens) == (9, 3, 12)
    assert log.stats.model_usage["turnwise/demo"].output_tokens == 6
    assert first.total_time == pytest.approx(0.75)
    metrics = {score.name: score.metrics["mean"].value for score in log.results.scores}
    assert metrics == {"reward": 1.0, "success": 1.0}


def test_in_inspect_an_error_is_an_error_and_a_malformed_call_says_so(tmp_path: Path) -> None:
    bad = Message(role="assistant", content=(), tool_calls=(ToolCall(id="c", name="add", arguments="{2"),))
    crashed = make_trajectory(
        make_turn([1], [2], message=bad),
        reward=Invalid(reason="tool crashed", retryable=True),
        stop=StopReason.ERROR,
        error="EnvironmentFault: <script>\ud800",
    )
    log = read_log(tmp_path / "a.eval", crashed)
    [sample] = log.samples
    assert sample.error.message.startswith("EnvironmentFault: <script>")
    assert not sample.scores
    [call] = sample.messages[-1].tool_calls
    assert call.arguments == {"text": "{2"}
    assert call.parse_error.startswith("arguments are not JSON")
    assert log.results.completed_samples == 0


def test_draws_of_one_task_are_samples_of_their_own(tmp_path: Path) -> None:
    log = pytest.importorskip("inspect_ai.log")
    groups = [replace(group_of(answered()), draw=Draw(index=index, task=TASK)) for index in (3, 8, 9)]
    path = tmp_path / "log.eval"
    facts = LogFacts(task="step_000001", run="run", model="turnwise/tiny", created=0.0, options={})
    write_inspect_log(path, list(list_conversations(groups, openings())), facts)
    read = log.read_eval_log(str(path))
    assert [sample.id for sample in read.samples] == [TASK.id, f"{TASK.id}@8", f"{TASK.id}@9"]
    assert read.eval.dataset.samples == read.results.total_samples == 3


PICTURE = to_part(np.full((2, 4, 3), 9, np.uint8), label="a name")
SEES = Message(role="tool", content=(TextPart(text="see "), PICTURE), tool_call_id="call_1", name="add")


def seeing() -> list[Conversation]:
    turn = make_turn([1], [2], message=ASK, observations=(SEES,))
    last = make_turn([1], [2], parent=0, message=text_message("assistant", "9"))
    return list(list_conversations([group_of(make_trajectory(turn, last, task_id=TASK.id))], openings()))


def test_pictures_in_rows_are_data_urls_or_addresses() -> None:
    [conversation] = seeing()
    message = to_sft_row(conversation, as_text=False)["messages"][3]
    assert (message["role"], message["tool_call_id"]) == ("tool", "call_1")
    assert message["content"][0] == {"type": "text", "text": "see "}
    assert read_picture(message["content"][1]) == PICTURE
    named = to_sft_row(conversation, as_text=False, to_url=lambda part: f"/run/{part.digest}.png")["messages"][3]
    assert named["content"][1] == {"type": "image_url", "image_url": {"url": f"/run/{PICTURE.digest}.png"}}


def test_rows_with_and_without_pictures_have_one_layout(tmp_path: Path) -> None:
    """Arrow takes no column with texts and lists."""
    parquet = pytest.importorskip("pyarrow.parquet")
    json_reader = pytest.importorskip("pyarrow.json")
    conversations = [*seeing(), *list_conversations([group_of(answered())], openings())]
    write_rows(tmp_path / "a.parquet", [to_sft_row(each, as_text=True, as_parts=True) for each in conversations])
    write_rows(tmp_path / "a.jsonl", [to_sft_row(each, as_text=False, as_parts=True) for each in conversations])
    for rows in (
        parquet.read_table(tmp_path / "a.parquet").to_pylist(),
        json_reader.read_json(tmp_path / "a.jsonl").to_pylist(),
    ):
        first, second = ([message["content"] for message in row["messages"]] for row in rows)
        assert [part["text"] for part in first[0]] == ["Be brief."]
        assert first[2] == second[2] == [], "the reply that only calls"
        assert read_picture(first[3][1]["image_url"]["url"]) == PICTURE
        assert [part["text"] for part in second[3]] == ["4"]


@pytest.mark.parametrize(("ending", "pictures"), [("jsonl", "data"), ("jsonl", "paths"), ("parquet", "data")])
def test_rows_with_pictures_are_read_as_they_were(tmp_path: Path, ending: str, pictures: str) -> None:
    if ending == "parquet":
        pytest.importorskip("pyarrow")
    [conversation] = seeing()
    store = PictureStore(tmp_path)
    store.put(PICTURE)
    to_url = embed(store) if pictures == "data" else lambda part: str(store.find_path(part.digest))
    row = to_sft_row(conversation, as_text=ending == "parquet", as_parts=True, to_url=to_url)
    write_rows(tmp_path / f"rows.{ending}", [row])
    rows = RowPictures()
    [(_, read)] = load_chat_rows(tmp_path / f"rows.{ending}", rows)
    assert read is not None
    assert [(m.role, m.content, m.tool_calls) for m in read.messages] == [
        (m.role, m.content, m.tool_calls) for m in conversation.messages
    ]
    assert rows.fill(read.messages[3]).images[0].pixels == PICTURE.pixels


def test_inspect_shows_pictures(tmp_path: Path) -> None:
    log = pytest.importorskip("inspect_ai.log")
    facts = LogFacts(task="step_000001", run="run", model="turnwise/tiny", created=0.0, options={})
    write_inspect_log(tmp_path / "log.eval", seeing(), facts)
    [sample] = log.read_eval_log(str(tmp_path / "log.eval"), resolve_attachments=True).samples
    text, image = sample.messages[3].content
    assert (text.text, sample.messages[3].tool_call_id) == ("see ", "call_1")
    assert read_picture(image.image) == PICTURE
