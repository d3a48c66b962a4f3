"""Episodes of the search world without a model: policies, controls, scoring, and what the agent can and cannot read."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest

from turnwise.core.errors import ConfigError, DataError
from turnwise.core.types import Invalid, StopReason, Task, ToolCallError, text_message
from turnwise.environments.replies import answer_message
from turnwise.environments.search_qa.family import SearchQA
from turnwise.environments.search_qa.files import load_corpus, load_questions
from turnwise.environments.search_qa.policies import search_message
from turnwise.environments.search_qa.questions import KINDS

TINY = {"num_entities": 40, "num_phrasings": 1, "top_k": 3, "document_format": "plain", "prompt": "short"}
NEEDS_SEARCH = {"1hop": 1.0, "2hop": 1.0, "3hop": 1.0, "intersection": 1.0, "union": 1.0}


async def play(family, task, policy, seed=0):
    """(reward, replies, environment) of one episode."""
    environment = family.build_environment(task)
    opening = await environment.reset(task, seed)
    messages, replies, rng = list(opening.messages), [], Random(seed)
    for _ in range(16):
        replies.append(policy.reply(task, messages, rng))
        result = await environment.step(replies[-1])
        messages += [replies[-1], *result.observations]
        if result.done:
            break
    reward = await environment.score(replies, StopReason.DONE)
    await environment.close()
    return reward, replies, environment


def success(count, policy, **arguments):
    """Share of held-out tasks a policy answers correctly."""
    family = SearchQA(**{**TINY, **arguments})

    async def run():
        return [
            (await play(family, family.task("heldout", i), family.policy(policy), i))[0].part("success")
            for i in range(count)
        ]

    return sum(asyncio.run(run())) / count


# ------------------------------------------------------------------------------------------------ policies and controls


@pytest.mark.parametrize("kind", KINDS)
def test_the_oracle_solves_every_kind(kind):
    assert success(60, "oracle", kinds={kind: 1.0}) >= 0.97


def test_the_oracle_solves_the_hard_setting():
    hard = {
        "num_entities": 100,
        "num_phrasings": 5,
        "num_distractors": 60,
        "document_format": "search_r1",
        "prompt": "search_r1",
    }
    assert success(60, "oracle", kinds={"1hop": 1.0, "2hop": 1.0}, **hard) >= 0.97
    assert success(60, "oracle", mode="fixed", num_passages=2000, kinds={"2hop": 1.0}, num_phrasings=5) >= 0.97


def test_the_random_policy_fails():
    assert success(150, "random", kinds=NEEDS_SEARCH) <= 0.1


@pytest.mark.parametrize("search", ["off", "shuffled"])
def test_without_search_the_oracle_fails(search):
    assert success(100, "oracle", kinds=NEEDS_SEARCH, search=search) < 0.15


def test_the_naive_policy_shows_the_protocol_but_not_the_strategy():
    assert success(80, "naive", kinds={"1hop": 1.0}) >= 0.75
    assert success(80, "naive", kinds={"1hop": 1.0}, naive_wander=0.0) >= 0.97
    assert success(80, "naive", kinds={"no_search": 1.0}) == 1.0
    assert success(80, "naive", kinds={"2hop": 1.0}) <= 0.15
    assert success(80, "naive", kinds={"2hop": 1.0}, naive_wander=1.0) <= 0.15


def test_naive_searches_a_substring_of_the_question():
    family = SearchQA(**TINY, kinds={"1hop": 1.0, "2hop": 1.0, "3hop": 1.0, "union": 1.0, "intersection": 1.0})
    for index in range(40):
        task = family.task("train", index)
        reply = family.policy("naive").reply(task, task.prompt, Random(0))
        assert json.loads(reply.tool_calls[0].arguments)["query"] in task.prompt[0].text


def test_policies_do_not_read_the_gold_answers():
    family = SearchQA(**TINY, kinds=dict.fromkeys(KINDS, 1.0))
    for index in range(20):
        task = family.task("heldout", index)
        payload = {**task.payload, "answers": ["Nobody"], "evidence": []}
        blind = Task(environment=task.environment, prompt=task.prompt, payload=payload)
        for name in ("oracle", "random", "naive"):
            _, replies, _ = asyncio.run(play(family, task, family.policy(name)))
            assert asyncio.run(play(family, blind, family.policy(name)))[1] == replies


def test_an_unknown_policy_names_the_known_ones():
    with pytest.raises(ConfigError, match="oracle, random, naive"):
        SearchQA().policy("oracel")


# ------------------------------------------------------------------------------------------------ what the agent reads


def test_nothing_the_agent_reads_before_searching_holds_the_answer():
    family = SearchQA(kinds=NEEDS_SEARCH, prompt="search_r1")
    for index in range(60):
        task = family.task("heldout", index)
        environment = family.build_environment(task)
        opening = asyncio.run(environment.reset(task, 0))
        shown = "".join(message.text for message in opening.messages) + str(opening.tools)
        assert not any(answer in shown for answer in task.payload["answers"])
        assert task.payload["query"] not in shown


def test_what_search_returns_is_the_corpus_and_nothing_else():
    family = SearchQA(**TINY, kinds={"2hop": 1.0})
    task = family.task("heldout", 0)
    _, _, environment = asyncio.run(play(family, task, family.policy("oracle")))
    texts = {p.text for p in family.retriever(task).passages}
    lines = [line for record in environment.tool_records for line in record.observation.splitlines()]
    assert len(lines) == 6  # two searches of three passages
    assert set(lines) <= texts


def test_document_formats():
    results = {}
    for document_format in ("plain", "search_r1"):
        family = SearchQA(**{**TINY, "document_format": document_format}, kinds={"1hop": 1.0})
        task = family.task("train", 0)
        _, _, environment = asyncio.run(play(family, task, family.policy("oracle")))
        results[document_format] = environment.tool_records[0].observation.splitlines()
    passages = {p.text: p.title for p in family.retriever(task).passages}
    expected = [
        f"Doc {number}(Title: {passages[text]}) {text}" for number, text in enumerate(results["plain"], start=1)
    ]
    assert results["search_r1"] == expected


def test_an_invalid_reply_is_answered_and_the_episode_goes_on():
    family = SearchQA(**TINY, kinds={"1hop": 1.0})
    task = family.task("train", 0)
    errors = [ToolCallError(kind=kind, raw="x", message="the call is not JSON") for kind in ("no_action", "bad_json")]

    async def run():
        environment = family.build_environment(task)
        await environment.reset(task, 0)
        return [await environment.step(text_message("assistant", "x", tool_errors=(error,))) for error in errors]

    no_action, bad_json = asyncio.run(run())
    assert not no_action.done
    assert "<search>" in no_action.observations[0].text
    assert not bad_json.done
    assert "not JSON" in bad_json.observations[0].text


def test_searching_nonsense_finds_nothing():
    family = SearchQA(**TINY)

    async def run():
        task = family.task("train", 0)
        environment: Any = family.build_environment(task)
        await environment.reset(task, 0)
        return await environment.step(search_message("???", 0))

    assert asyncio.run(run()).observations[0].text == "no passages found\n"


# ------------------------------------------------------------------------------------------------ score and state


async def score(family, task, replies, stop=StopReason.DONE):
    environment = family.build_environment(task)
    await environment.reset(task, 0)
    for reply in replies:
        await environment.step(reply)
    return await environment.score(replies, stop)


def test_score_has_its_parts_and_the_chosen_total():
    task = SearchQA(**TINY, kinds={"1hop": 1.0}).task("train", 0)
    half = task.payload["answers"][0].split()[0]  # one of two words: precision 1, recall 1/2, F1 2/3
    for reward, total in (("exact_match", 0.0), ("f1", 2 / 3), ("format", 0.1)):
        family = SearchQA(**TINY, kinds={"1hop": 1.0}, reward=reward)
        scored = asyncio.run(score(family, task, [answer_message(half)]))
        assert scored.total == pytest.approx(total)
        assert {part.name: part.value for part in scored.parts} == pytest.approx(
            {"success": 0.0, "exact_match": 0.0, "f1": 2 / 3, "format": 0.1}
        )


def test_a_truncated_reply_without_an_answer_is_wrong_not_invalid():
    family = SearchQA(**TINY, kinds={"1hop": 1.0})
    task = family.task("train", 0)
    gold = task.payload["answers"][0]
    assert asyncio.run(score(family, task, [text_message("assistant", gold)])).total == 1.0
    assert asyncio.run(score(family, task, [text_message("assistant", gold)], StopReason.MAX_TURN_TOKENS)).total == 0.0
    assert asyncio.run(score(family, task, [], StopReason.MAX_TOKENS)).total == 0.0


def test_the_rule_of_comparison_is_an_argument(tmp_path):
    (tmp_path / "corpus.jsonl").write_text('{"id": "1", "title": "t", "text": "x"}\n')
    (tmp_path / "questions.jsonl").write_text('{"question": "q", "answers": ["3.14"]}\n')
    paths = {"corpus_path": "corpus.jsonl", "train_path": "questions.jsonl", "heldout_path": "questions.jsonl"}
    given = {name: str(tmp_path / path) for name, path in paths.items()}
    for arguments, total in (({}, 0.0), ({"normalize": "squad"}, 1.0)):
        for reward in ("exact_match", "f1", "format"):
            family = SearchQA(mode="files", reward=reward, **given, **arguments)
            result = asyncio.run(score(family, family.task("train", 0), [answer_message("314", reasoning="so")]))
            assert result.total == pytest.approx(total or 0.2 * (reward == "format"))
            assert {part.name: part.value for part in result.parts}["success"] == total
    with pytest.raises(ConfigError, match=r"normalize='drop'.*'numbers' or 'squad'"):
        SearchQA(**TINY, normalize="drop")


def test_a_reward_by_import_path_that_fails_later_is_invalid(monkeypatch, tmp_path):
    (tmp_path / "late_reward.py").write_text(
        "from dataclasses import replace\n"
        "from turnwise.rewards.answers import REWARDS\n"
        "def compute(case):\n"
        "    if case.golds[0] not in ('Port Vessa', 'Orin Vale', 'Beijing', 'A'):\n"
        "        raise LookupError('no judge')\n"
        "    return REWARDS['exact_match'].compute(case)\n"
        "REWARD = replace(REWARDS['exact_match'], name='own', compute=compute)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    family = SearchQA(**TINY, reward="late_reward:REWARD")
    result = asyncio.run(score(family, family.task("train", 0), [answer_message("x")]))
    assert isinstance(result, Invalid)
    assert "no judge" in result.reason


@pytest.mark.parametrize("search", ["on", "shuffled"])
def test_a_fork_has_the_same_state_and_a_future_of_its_own(search):
    family = SearchQA(**TINY, search=search)

    async def run():
        task = family.task("train", 0)
        environment: Any = family.build_environment(task)
        await environment.reset(task, 5)
        await environment.step(search_message("mayor", 0))
        twin = await environment.fork()
        hashes = [environment.state_hash(), twin.state_hash()]
        same = [(await each.step(search_message("author", 1))).observations[0].text for each in (environment, twin)]
        await twin.step(search_message("founder", 2))
        hashes += [environment.state_hash(), twin.state_hash()]
        rewards = [await each.score([answer_message("unknown")], StopReason.DONE) for each in (environment, twin)]
        return hashes, same, rewards

    hashes, same, rewards = asyncio.run(run())
    assert hashes[0] == hashes[1]
    assert hashes[2] != hashes[3]
    assert same[0] == same[1]  # the episode's luck is the fork's too
    assert rewards[0] == rewards[1]


def test_state_hash_tells_states_apart():
    family = SearchQA(**TINY)
    task = family.task("train", 0)

    async def run(*searches):
        environment: Any = family.build_environment(task)
        await environment.reset(task, 0)
        for number, query in enumerate(searches):
            await environment.step(search_message(query, number))
        return environment.state_hash()

    hashes = [
        asyncio.run(run(*searches))
        for searches in ((), ("author",), ("author",), ("author", "twin"), ("twin", "author"))
    ]
    assert hashes[1] == hashes[2]
    assert len(set(hashes)) == 4


# ------------------------------------------------------------------------------------------------ arguments


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"mode": "fesh"}, ["mode='fesh'", "'fresh'"]),
        ({"search": True}, ["search=True", "'off'"]),
        ({"num_entities": 3}, ["num_entities=3", "12"]),
        ({"num_passages": 10}, ["num_passages=10", "1000"]),
        ({"top_k": 0}, ["top_k=0"]),
        ({"top_k": 2.5}, ["top_k=2.5"]),
        ({"num_phrasings": 99}, ["num_phrasings=99"]),
        ({"naive_wander": 1.5}, ["naive_wander=1.5"]),
        ({"kinds": {"4hop": 1.0}}, ["kinds.4hop", "3hop"]),
        ({"kinds": {"1hop": -1}}, ["kinds.1hop=-1"]),
        ({"kinds": {"1hop": float("nan")}}, ["kinds.1hop=nan"]),
        ({"kinds": {}}, ["no positive weight"]),
        ({"kinds": ["1hop"]}, ["not a table"]),
        ({"reward": "em"}, ["reward='em'", "exact_match"]),
        ({"mode": "files"}, ["corpus_path"]),
    ],
)
def test_bad_arguments_are_refused_by_name(arguments, words):
    with pytest.raises(ConfigError) as raised:
        SearchQA(**arguments)
    assert all(word in str(raised.value) for word in words)


def test_indices_and_splits_are_checked():
    with pytest.raises(IndexError):
        SearchQA().task("train", -1)
    with pytest.raises(ConfigError, match="heldout"):
        SearchQA().task("test", 0)  # type: ignore[arg-type]


def test_texts_show_what_training_shows():
    texts = SearchQA(**TINY).texts(200)
    assert len(texts) == 200
    assert any(text.startswith("Question: ") for text in texts)
    assert any(text.startswith("<search> ") and text.endswith(" </search>") for text in texts)
    assert any(text.startswith("<answer> ") and text.endswith(" </answer>") for text in texts)
    assert any(text.startswith("The ") and text.endswith(".\n") for text in texts)


# ------------------------------------------------------------------------------------------------ files


def write(path, *rows):
    path.write_text(
        "\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows) + "\n", encoding="utf-8"
    )
    return path


LAYOUTS = [
    ({"question": "Who?", "answers": ["A", "B"], "kind": "easy"}, ("Who?", ("A", "B"), "easy")),
    ({"question": "Who?", "golden_answers": ["A"]}, ("Who?", ("A",), "file")),
    (
        {
            "data_source": "nq",
            "prompt": [
                {"role": "user", "content": "Answer it. For example, <answer> Beijing </answer>. Question: Who?\n"}
            ],
            "reward_model": {"ground_truth": {"target": ["A"]}, "style": "rule"},
        },
        ("Who?", ("A",), "file"),
    ),
    ({"_id": "1", "question": "Who?", "answer": "A", "type": "bridge", "level": "hard"}, ("Who?", ("A",), "bridge")),
    ({"question": {"text": "Who?"}, "answer": ["A", "B"]}, ("Who?", ("A", "B"), "file")),
    ({"question": "Who?", "answer": ["A"]}, ("Who?", ("A",), "file")),
]


@pytest.mark.parametrize(("row", "expected"), LAYOUTS)
def test_question_layouts(tmp_path, row, expected):
    (question,) = load_questions(write(tmp_path / "q.jsonl", "", row, "  "))
    assert (question.question, question.answers, question.kind) == expected


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("{", ["not JSON"]),
        ("[1]", ["list instead of an object"]),
        ({"question": "Who?"}, ["no answer under", "golden_answers"]),
        ({"answers": ["A"]}, ["no question under the keys ['answers']"]),
        ({"question": "Who?", "answers": "A"}, ["\"answers\" is 'A'", "list"]),
        ({"question": "Who?", "answers": []}, ["at least one"]),
        ({"question": "Who?", "answers": ["A", True]}, ["answers[1]", "True"]),
        ({"question": " ", "answers": ["A"]}, ['"question"']),
        ({"prompt": [], "reward_model": {"ground_truth": {"target": ["A"]}}}, ['"prompt" is []']),
        ({"question": "Who?", "reward_model": {"ground_truth": {}}}, ["reward_model.ground_truth.target"]),
    ],
)
def test_a_malformed_question_names_file_line_and_fault(tmp_path, row, words):
    path = write(tmp_path / "q.jsonl", {"question": "Who?", "answers": ["A"]}, "", row)
    with pytest.raises(DataError) as raised:
        load_questions(path)
    assert str(raised.value).startswith(f"{path}:3: ")
    assert all(word in str(raised.value) for word in words)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([{"title": "T", "text": "t"}], [":1: ", '"id" is None']),
        ([{"id": "1", "title": "T"}], [":1: ", '"text" is None']),
        ([{"id": "1", "text": "t"}], [":1: ", '"title" is None']),
        ([{"id": "1", "title": "", "text": "t"}, {"id": "1", "title": "", "text": "u"}], [":2: ", "line 1"]),
        ([""], ["no rows"]),
    ],
)
def test_a_malformed_corpus_names_file_line_and_fault(tmp_path, rows, words):
    with pytest.raises(DataError) as raised:
        load_corpus(write(tmp_path / "c.jsonl", *rows))
    assert all(word in str(raised.value) for word in words)


def test_missing_and_undecodable_files(tmp_path):
    with pytest.raises(DataError, match="cannot read"):
        load_questions(tmp_path / "none.jsonl")
    (tmp_path / "latin.jsonl").write_bytes(b'{"question": "\xff", "answers": ["A"]}\n')
    with pytest.raises(DataError, match=":1: not JSON in UTF-8"):
        load_questions(tmp_path / "latin.jsonl")


def test_a_users_own_files_go_through_the_same_environment(tmp_path):
    paths = {
        "corpus_path": str(write(tmp_path / "c.jsonl", {"id": 1, "title": "Rhine", "text": "It flows through Basel."})),
        "train_path": str(write(tmp_path / "t.jsonl", *({"question": f"Q{i}?", "answers": ["A"]} for i in range(5)))),
        "heldout_path": str(
            write(tmp_path / "h.jsonl", {"question": "Where does the Rhine flow?", "answers": ["Basel"]})
        ),
    }
    family = SearchQA(mode="files", document_format="plain", **paths)
    epochs = [[family.task("train", 5 * epoch + i).payload["question"] for i in range(5)] for epoch in range(4)]
    assert all(sorted(epoch) == [f"Q{i}?" for i in range(5)] for epoch in epochs)
    assert len(set(map(tuple, epochs))) > 1
    task = family.task("heldout", 0)
    with pytest.raises(IndexError, match="1 rows"):
        family.task("heldout", 1)
    reward, _, environment = asyncio.run(play(family, task, family.policy("oracle")))
    assert reward.total == 1.0
    assert environment.tool_records[0].observation == "It flows through Basel.\n"
    for name in ("random", "naive"):
        asyncio.run(play(family, task, family.policy(name)))
    assert len(family.texts(7)) == 7


def test_an_installed_jax_does_not_take_the_memory_of_the_gpu(tmp_path: Path) -> None:
    # bm25s starts JAX on import; the stand-in prints what JAX would read there.
    (tmp_path / "jax").mkdir()
    (tmp_path / "jax" / "__init__.py").write_text(
        "import os\nprint('preallocate', os.environ.get('XLA_PYTHON_CLIENT_PREALLOCATE'))\n"
    )
    (tmp_path / "jax" / "lax.py").write_text("def top_k(scores, k): ...\n")
    done = subprocess.run(
        [sys.executable, "-c", "import turnwise.environments.search_qa.family"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert done.stdout == "preallocate false\n"
