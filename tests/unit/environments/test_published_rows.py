"""One written row of every published layout, read whole or refused by line; docs/data.md has the same table."""

import json
from pathlib import Path
from typing import Any

import pytest
from published_rows import ASKED, EARLIER, ENDINGS, QUESTION, SYSTEM, WHOLE, Layout, check_layout

from turnwise.core.errors import DataError
from turnwise.environments.data_rows import read_rows
from turnwise.environments.math_code.datasets import to_math_row
from turnwise.environments.math_code.family import MathCode
from turnwise.environments.mcp.rows import to_row
from turnwise.environments.search_qa.family import SearchQA
from turnwise.environments.search_qa.files import to_question
from turnwise.runs.ask import question_task

DAPO = (
    "Solve the following math problem step by step. The last line of your response should be of the form Answer: "
    "$Answer (without quotes) where $Answer is the answer to the problem.\n\n{}\n\nRemember to put your answer on its "
    'own line after "Answer:".'
)
SEARCH_R1 = (
    "Answer the given question. You must conduct reasoning inside <think> and </think> first. You may provide the "
    "answer inside <answer> and </answer>, for example <answer> Beijing </answer>. Question: {}\n"
)


FUNCTIONS = {"question": [[{"role": "user", "content": "Find the area."}]], "function": [{"name": "area"}]}
LAYOUTS = {
    "verl": Layout(
        reader=to_math_row,
        row={
            "data_source": "sums",
            "prompt": [SYSTEM, *EARLIER, QUESTION],
            "ability": "math",
            "reward_model": {"style": "rule", "ground_truth": "11"},
            "extra_info": {"split": "train", "index": 0, "question": "something else"},
        },
        messages=WHOLE,
        answers=("11",),
    ),
    "verl, a number": Layout(
        reader=to_math_row,
        row={"data_source": "sums", "prompt": [QUESTION], "reward_model": {"style": "rule", "ground_truth": 8}},
        messages=ASKED,
        answers=("8",),
    ),
    "verl, targets": Layout(
        reader=to_question,
        row={"prompt": [SYSTEM, QUESTION], "reward_model": {"ground_truth": {"target": ["eight", 8]}}},
        messages=(WHOLE[0], *ASKED),
        answers=("eight", "8"),
    ),
    "SkyRL": Layout(
        reader=to_math_row,
        row={
            "data_source": "sums",
            "prompt": [SYSTEM, *EARLIER, QUESTION],
            "env_class": "sums",
            "reward_spec": {"method": "rule", "ground_truth": "11"},
            "extra_info": {"index": 0},
        },
        messages=WHOLE,
        answers=("11",),
    ),
    "TRL, standard": Layout(
        reader=to_math_row,
        row={"prompt": "What is 3 + 5?", "solution": "It is $\\boxed{8}$."},
        messages=ASKED,
        answers=("8",),
    ),
    "TRL, conversational": Layout(
        reader=to_math_row,
        row={"prompt": [SYSTEM, QUESTION], "answer": "11"},
        messages=(WHOLE[0], *ASKED),
        answers=("11",),
    ),
    "TRL, preferences": Layout(
        reader=to_math_row, row={"prompt": "What is 3 + 5?", "chosen": "8", "rejected": "9"}, refused="preferences"
    ),
    "TRL, prompt and completion": Layout(
        reader=to_math_row, row={"prompt": "What is 3 + 5?", "completion": "8"}, refused="a demonstration"
    ),
    "OpenAI": Layout(
        reader=to_question,
        row={
            "messages": [
                {"role": "developer", "content": "Give every number in base seven."},
                *EARLIER,
                {"role": "user", "content": [{"type": "text", "text": "What is "}, {"type": "text", "text": "3 + 5?"}]},
            ],
            "answers": ["11"],
        },
        messages=WHOLE,
        answers=("11",),
    ),
    "OpenAI, a demonstration": Layout(
        reader=to_math_row,
        row={"messages": [QUESTION, {"role": "assistant", "content": "8"}]},
        refused="ends with a message from 'assistant'",
    ),
    "OpenAI, an image": Layout(
        reader=to_math_row,
        row={
            "messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}],
            "answer": "8",
        },
        refused="prompts contain only text",
    ),
    "OpenAI, tool calls": Layout(
        reader=to_math_row,
        row={
            "messages": [{"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}, QUESTION],
            "answer": "8",
        },
        refused=r"\['tool_calls'\]",
    ),
    "a prefilled reply": Layout(
        reader=to_math_row,
        row={"prompt": [QUESTION, {"role": "assistant", "content": "Let me"}], "answer": "8"},
        refused="ends with a message from 'assistant'; expected a user message at the end",
    ),
    "ShareGPT": Layout(
        reader=to_math_row,
        row={"conversations": [{"from": "human", "value": "What is 3 + 5?"}], "answer": "8"},
        refused=r"conversations\[0\]",
    ),
    "GSM8K": Layout(
        reader=to_math_row,
        row={"question": "What is 3 + 5?", "answer": "3 + 5 = <<3+5=8>>8\n#### 8"},
        messages=ASKED,
        answers=("8",),
    ),
    "MATH": Layout(
        reader=to_math_row,
        row={
            "problem": "What is 3 + 5?",
            "level": "Level 1",
            "type": "Prealgebra",
            "solution": "Count on from 3, which gives $\\boxed{8}$.",
        },
        messages=ASKED,
        answers=("8",),
    ),
    "DAPO-Math-17k": Layout(
        reader=to_math_row,
        row={
            "data_source": "math_dapo",
            "prompt": [{"content": DAPO.format("What is 3 + 5?"), "role": "user"}],
            "ability": "MATH",
            "reward_model": {"ground_truth": "8", "style": "rule-lighteval/MATH_v2"},
            "extra_info": {"index": "9a9b6eb4"},
        },
        messages=ASKED,
        answers=("8",),
    ),
    "AIME": Layout(
        reader=to_math_row,
        row={"ID": "2024-I-1", "Problem": "What is 3 + 5?", "Solution": "Count.", "Answer": 8},
        messages=ASKED,
        answers=("8",),
    ),
    "HotpotQA, the published file": Layout(
        reader=to_question,
        row={
            "_id": "5a7a",
            "answer": "yes",
            "question": "Were both born in Bern?",
            "supporting_facts": [["Anna Keller", 0], ["Otto Keller", 0]],
            "context": [["Anna Keller", ["Anna Keller was born in Bern."]], ["Otto Keller", ["Otto too."]]],
            "type": "comparison",
            "level": "hard",
        },
        messages=(("user", "Were both born in Bern?"),),
        answers=("yes",),
    ),
    "HotpotQA, columns": Layout(
        reader=to_question,
        row={
            "id": "5a7a",
            "question": "Were both born in Bern?",
            "answer": "yes",
            "type": "comparison",
            "level": "hard",
            "supporting_facts": {"title": ["Anna Keller"], "sent_id": [0]},
            "context": {"title": ["Anna Keller"], "sentences": [["Anna Keller was born in Bern."]]},
        },
        messages=(("user", "Were both born in Bern?"),),
        answers=("yes",),
    ),
    "NQ, FlashRAG": Layout(
        reader=to_question,
        row={"id": "test_0", "question": "who wrote the song", "golden_answers": ["Ada Lind", "A. Lind"]},
        messages=(("user", "who wrote the song"),),
        answers=("Ada Lind", "A. Lind"),
    ),
    "NQ, Search-R1": Layout(
        reader=to_question,
        row={
            "id": "test_0",
            "question": "who wrote the song?",
            "golden_answers": ["Ada Lind"],
            "data_source": "nq",
            "prompt": [{"role": "user", "content": SEARCH_R1.format("who wrote the song?")}],
            "ability": "fact-reasoning",
            "reward_model": {"style": "rule", "ground_truth": {"target": ["Ada Lind"]}},
            "extra_info": {"split": "test", "index": 0},
        },
        messages=(("user", "who wrote the song?"),),
        answers=("Ada Lind",),
    ),
    "Natural Questions": Layout(
        reader=to_question,
        row={"question": {"text": "who wrote the song"}, "answer": ["Ada Lind"]},
        messages=(("user", "who wrote the song"),),
        answers=("Ada Lind",),
    ),
    "SQuAD": Layout(
        reader=to_question,
        row={
            "id": "5733",
            "title": "Songs",
            "context": "Ada Lind wrote it.",
            "question": "Who wrote it?",
            "answers": {"text": ["Ada Lind", "Lind", "Ada Lind"], "answer_start": [0, 4, 0]},
        },
        messages=(("user", "Who wrote it?"),),
        answers=("Ada Lind", "Lind"),
    ),
    "TriviaQA": Layout(
        reader=to_question,
        row={"question": "Who wrote it?", "answer": {"value": "Ada Lind", "aliases": ["A. Lind"], "type": "Person"}},
        messages=(("user", "Who wrote it?"),),
        answers=("Ada Lind", "A. Lind"),
    ),
    "MuSiQue": Layout(
        reader=to_question,
        row={"id": "2hop__1", "question": "Who wrote it?", "answer": "Ada Lind", "answer_aliases": ["A. Lind"]},
        messages=(("user", "Who wrote it?"),),
        answers=("Ada Lind", "A. Lind"),
    ),
    "messages as text": Layout(
        reader=to_math_row,
        row={"prompt": json.dumps([SYSTEM, *EARLIER, QUESTION]), "answer": "11"},
        messages=WHOLE,
        answers=("11",),
    ),
    "GSM8K without its mark": Layout(
        reader=to_math_row,
        row={"question": "What is 3 + 5?", "answer": "3 + 5 = 8\nIt is 8."},
        refused="several lines without ####",
    ),
    "BFCL, as questions": Layout(reader=to_question, row=FUNCTIONS, refused='"question" is'),
    "SWE-bench": Layout(
        reader=to_math_row,
        row={"instance_id": "a__b-1", "repo": "a/b", "problem_statement": "It fails.", "FAIL_TO_PASS": "[]"},
        refused="no question under the keys",
    ),
}


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("ending", ENDINGS)
def test_a_published_row_is_read_whole_or_refused_by_line(tmp_path: Path, name: str, ending: str) -> None:
    check_layout(LAYOUTS[name], tmp_path / f"rows{ending}")


def write(path: Path, *rows: object) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def make_math(tmp_path: Path, *rows: object, heldout: object = None) -> MathCode:
    return MathCode(
        mode="files",
        prompt="short",
        train_path=write(tmp_path / "train.jsonl", *rows),
        heldout_path=write(tmp_path / "heldout.jsonl", heldout or {"question": "1 + 1?", "answer": "2"}),
    )


def test_the_task_asks_with_the_system_text_and_the_earlier_turns(tmp_path: Path) -> None:
    family = make_math(tmp_path, LAYOUTS["verl"].row)
    prompt = [(message.role, message.text) for message in family.task("train", 0).prompt]
    assert prompt == [*WHOLE[:-1], ("user", "What is 3 + 5?\n")]
    corpus = write(tmp_path / "corpus.jsonl", {"id": 1, "title": "", "text": "A text."})
    rows = write(tmp_path / "rows.jsonl", LAYOUTS["OpenAI"].row)
    search = SearchQA(mode="files", prompt="short", corpus_path=corpus, train_path=rows, heldout_path=rows)
    prompt = [(message.role, message.text) for message in search.task("train", 0).prompt]
    assert prompt == [*WHOLE[:-1], ("user", "Question: What is 3 + 5?\n")]


def test_a_question_of_ones_own_leaves_the_system_text_alone(tmp_path: Path) -> None:
    row = {"prompt": [SYSTEM, *EARLIER, QUESTION], "answer": 11}
    task = question_task(make_math(tmp_path, row, heldout=row), "What is 4 + 4?", 0)
    prompt = [(message.role, message.text) for message in task.prompt]
    assert prompt == [*WHOLE[:-1], ("user", "What is 4 + 4?\n")]


def test_few_bad_rows_are_left_out_counted_and_named(tmp_path: Path) -> None:
    rows: list[object] = [{"question": f"{number}?", "answer": number} for number in range(60)]
    rows[16], rows[39] = {"question": "?", "solution": "without a box"}, {"question": "half \ud83d", "answer": 1}
    family = make_math(tmp_path, *rows)
    [note] = family.notes
    assert note.startswith("2 of 60 rows are left out: ")
    assert 'train.jsonl:17: "solution" has no \\boxed{}' in note
    assert "train.jsonl:40: half of a surrogate pair ('\\ud83d' after '{\"question\": \"half ')" in note
    tasks = [family.task("train", index) for index in range(58)]
    assert len({task.id for task in tasks}) == 58
    with pytest.raises(DataError, match=r"train.jsonl:1: .* \(4 of 60 rows are bad; max_bad_rows=0.05 is the"):
        make_math(tmp_path, {}, {}, *rows[2:])


def test_gold_answers_that_nothing_can_be_compared_with_are_named_at_the_load(tmp_path: Path) -> None:
    rows: list[object] = [{"question": f"{number}?", "answer": number} for number in range(60)]
    rows[7], rows[8] = {"question": "?", "answers": ["4", "$.$"]}, {"question": "?", "answer": "so: #### \\text{}"}
    [note] = make_math(tmp_path, *rows).notes
    assert note == (
        f"2 of 60 rows are left out: {tmp_path}/train.jsonl:8: the answer '$.$' contains nothing to compare a reply "
        f"with; correct it; {tmp_path}/train.jsonl:9: the answer '\\\\text{{}}' contains nothing to compare a reply "
        "with; correct it"
    )
    with pytest.raises(DataError, match=r"""answers\[1\]" is '\\u200b'; expected text"""):
        to_question({"question": "?", "answers": ["a", "\u200b"]})  # equal to an empty reply, after normalization
    with pytest.raises(DataError, match=r'"question" is'):
        to_question({"question": "\ufeff \n", "answers": ["a"]})


@pytest.mark.parametrize(
    ("row", "needs_answer", "said"),
    [
        ({"answer": ""}, True, "answer is ''; write text, or leave it out"),
        ({"answer": ["4", " "]}, False, "answer is ' '"),  # an empty reply would be a success
        ({"answer": []}, True, "no answer, which the reward needs"),
        ({"question": "\u200b", "answer": "4"}, True, r"question is '\\u200b'; write text"),
    ],
)
def test_a_row_of_servers_without_a_question_or_with_a_blank_answer_is_refused(
    row: dict[str, object], needs_answer: bool, said: str
) -> None:
    assert to_row({"question": "?", "answer": "4"}, needs_answer=True).answers == ["4"]
    assert to_row({"question": "?"}, needs_answer=False).answers == []
    with pytest.raises(DataError, match=said):
        to_row({"question": "?", **row}, needs_answer=needs_answer)


def test_a_task_knows_its_line(tmp_path: Path) -> None:
    family = make_math(tmp_path, *({"question": f"{number}?", "answer": number} for number in range(5)))
    for index in range(10):
        number = int(family.task("train", index).payload["answers"][0])
        assert family.place("train", index) == f"{tmp_path / 'train.jsonl'}:{number + 1}"
    assert [(file.path.name, file.num_rows) for file in family.data_files] == [("train.jsonl", 5), ("heldout.jsonl", 1)]


def test_copies_and_held_out_rows_that_are_trained_on_are_told(tmp_path: Path) -> None:
    row = {"question": "3 + 5?", "answer": 8}
    family = make_math(tmp_path, *[row] * 50, {"question": "3 + 6?", "answer": 9}, heldout={**row, "kind": "other"})
    assert family.notes == (
        f"49 of the 51 rows of split 'train' ask what an earlier row asks: {tmp_path}/train.jsonl:2 is "
        f"{tmp_path}/train.jsonl:1 again",
        f"1 of the 1 held-out tasks are trained on too ({tmp_path}/heldout.jsonl:1 is {tmp_path}/train.jsonl:1): their "
        "score says nothing about new tasks",
    )
    assert make_math(tmp_path, row).notes == ()


@pytest.mark.parametrize("end", ["\u2028", "\u2029", "\x85", "\x0c", "\x0b", "\x1c", "\r"])
def test_only_a_line_feed_ends_a_row(tmp_path: Path, end: str) -> None:
    path = tmp_path / "rows.jsonl"
    line = json.dumps({"question": f"a{end}b"}, ensure_ascii=False)
    path.write_bytes(f"\ufeff{line}\r\n\r\n{line}\n".encode())
    assert list(read_rows(path)) == [(1, {"question": f"a{end}b"}), (3, {"question": f"a{end}b"})]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"a": ' + b"9" * 5000 + b"}", r":1: not JSON in UTF-8 \(Exceeds the limit"),
        (b"[" * 200_000, r":1: not JSON"),
        (b'{"a": "\\ud83d"}', ":1: half of a surrogate pair"),
        (b'{"a": 1} {"a": 2}', ":1: not JSON in UTF-8"),
        (b'{"a": 1, "b": {"c": 1, "c": 2}}', ":1: 'c' appears twice in one object; keep one of them"),
    ],
    ids=["digits", "depth", "surrogate", "two objects", "one name twice"],
)
def test_lines_that_no_reader_takes_are_named(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(content + b"\n")
    with pytest.raises(DataError, match=message):
        list(read_rows(path))


def test_a_folder_and_a_path_with_a_zero_byte_are_refused(tmp_path: Path) -> None:
    (tmp_path / "folder.jsonl").mkdir()
    for path in (tmp_path / "folder.jsonl", Path("zero\0.jsonl")):
        with pytest.raises(DataError, match="cannot read"):
            list(read_rows(path))


def test_rows_of_parquet_are_counted_through_its_parts(tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "rows.parquet"
    parquet.write_table(arrow.table({"id": list(range(9000))}), path, row_group_size=1000)
    assert [(number, row["id"]) for number, row in read_rows(path)] == [(at + 1, at) for at in range(9000)]
    data = path.read_bytes()
    path.write_bytes(data[:2000] + b"\xff" * 2000 + data[4000:])
    with pytest.raises(DataError, match=r"rows.parquet: not a readable Parquet file"):
        list(read_rows(path))


@pytest.mark.parametrize("inner", [False, True])
def test_objects_that_a_column_of_text_holds_as_json_are_read(inner: bool) -> None:
    truth: Any = {"ground_truth": json.dumps({"target": ["7"]}) if inner else "7", "style": "rule"}
    row = {"prompt": [{"role": "user", "content": "3+4?"}], "reward_model": truth if inner else json.dumps(truth)}
    assert to_math_row(row).answers == ("7",)
    row["reward_model"] = {"ground_truth": '{"a": 1}'}  # an answer that is JSON stays a text
    assert to_question(row).answers == ('{"a": 1}',)
