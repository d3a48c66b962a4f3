"""A model behind an API writes bugs: what is asked, what becomes of each reply, and what the ledger says."""

import asyncio
from pathlib import Path

import pytest
from chat_server import Reply, chat_completion, chat_server
from small_package import HELPERS, write_repository
from small_package import test_id as tid

from turnwise.core.errors import ConfigError, EngineError
from turnwise.tools.chat_api import ChatApi
from turnwise_sandbox import LocalSandbox
from turnwise_swe.bugs.ledger import load_ledger
from turnwise_swe.bugs.making import Maker
from turnwise_swe.bugs.start import open_maker
from turnwise_swe.bugs.writing import list_places, mirror_changes, read_changes, write_bugs
from turnwise_swe.commands import bugs as command
from turnwise_swe.repositories.diffs import make_diff
from turnwise_swe.repositories.instance import load_instances


async def ask_once(url: str, prompt: str = "Hello?", **settings: object) -> str:
    api = ChatApi(url, "tiny", max_tokens=9, seed=3, retries_s=(0.0, 0.0), **settings)  # type: ignore[arg-type]
    try:
        return await api.ask(prompt)
    finally:
        await api.close()


def test_a_prompt_is_one_message_with_the_key_and_a_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    with chat_server(lambda prompt: prompt.upper()) as (url, requests):
        assert asyncio.run(ask_once(f"{url}/")) == "HELLO?"
        assert asyncio.run(ask_once(url)) == "HELLO?"
        asyncio.run(ask_once(url, "Other"))
    assert requests[0] == {
        "path": "/v1/chat/completions",
        "key": "Bearer secret",
        "model": "tiny",
        "max_tokens": 9,
        "messages": [{"role": "user", "content": "Hello?"}],
        "seed": requests[0]["seed"],
    }
    assert requests[0]["seed"] == requests[1]["seed"] != requests[2]["seed"]


def test_a_busy_server_is_asked_again_and_other_refusals_are_told() -> None:
    answers: list[Reply] = [(503, "starting"), (429, "later"), "now"]
    with chat_server(lambda _: answers.pop(0)) as (url, requests):
        assert asyncio.run(ask_once(url)) == "now"
        assert len(requests) == 3
        assert requests[0]["key"] is None
    with chat_server(lambda _: (500, "broken")) as (url, requests):
        with pytest.raises(EngineError, match=r"answered 500: broken; is the server up\?"):
            asyncio.run(ask_once(url))
        assert len(requests) == 3
    with chat_server(lambda _: (404, "no model tiny")) as (url, requests):
        with pytest.raises(EngineError, match="answered 404: no model tiny"):
            asyncio.run(ask_once(url))
        assert len(requests) == 1
    with pytest.raises(EngineError, match="did not answer"):  # the server has gone
        asyncio.run(ask_once(url))


@pytest.mark.parametrize("body", ["hello", "[]", '{"choices": []}', '{"choices": [{"message": {"content": 1}}]}'])
def test_an_answer_of_another_kind_is_an_error(body: str) -> None:
    with (
        chat_server(lambda _: (200, body)) as (url, _),
        pytest.raises(EngineError, match="did not answer like an OpenAI-style API"),
    ):
        asyncio.run(ask_once(url))


def test_a_message_without_text_is_an_empty_reply() -> None:
    with chat_server(lambda _: (200, chat_completion(None))) as (url, _):
        assert asyncio.run(ask_once(url)) == ""


@pytest.mark.parametrize("url", ["localhost:8000", "http://", "ftp://host/v1", "http://me:secret@host/v1"])
def test_what_is_no_address_of_an_api_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="--api") as refusal:
        ChatApi(url, "tiny", max_tokens=9, seed=0)
    assert "OPENAI_API_KEY" in str(refusal.value)


def test_the_command_refuses_what_does_not_belong_together(tmp_path: Path) -> None:
    out = tmp_path / "bugs.jsonl"
    with pytest.raises(ConfigError, match="--kind is 'other'"):
        command.write(["calc==1.0"], out, kind="other")
    for arguments in ({}, {"api": "http://host/v1"}, {"api": "http://host/v1", "model": "m", "run": tmp_path}):
        with pytest.raises(ConfigError, match="pass --api URL and --model NAME, or --run RUN"):
            command.write(["calc==1.0"], out, **arguments)  # type: ignore[arg-type]
    for kind, changes in (("pr_mirror", None), ("lm_modify", tmp_path)):
        with pytest.raises(ConfigError, match="--changes FOLDER with --kind pr_mirror"):
            command.write(["calc==1.0"], out, api="http://host/v1", model="m", kind=kind, changes=changes)
    with pytest.raises(ConfigError, match="git format-patch"):
        read_changes(tmp_path)


REPLIES = {
    "clamp": "def clamp(value, low, high):\n    if value < low:\n        return low\n    return value\n",  # a bug
    "total": "I will not write bugs.",
    "Counter.up": "def up(self):\n    self.count += self.step\n    return self.count\n",  # no change
    "countdown": "def countdown(number):\n    while number > 1:\n        number -= 1\n    return 0\n",  # no difference
}
MEAN = "def mean(values):\n    if values:\n        return sum(values)\n    return None\n"


def reply_by_name(prompt: str) -> Reply:
    if "A change was made" in prompt:
        return f"```python\n{MEAN}```\n"
    name = next((name for name in REPLIES if f"`{name}`" in prompt), "")
    return f"```python\n{REPLIES[name]}```\n" if name != "total" else REPLIES[name]


@pytest.mark.slow
def test_what_a_model_writes_is_judged_and_asked_for_once(tmp_path: Path) -> None:
    root = tmp_path / "calc"
    root.mkdir()
    tmp_path.chmod(0o755)
    calc, file, ledger = write_repository(root), tmp_path / "bugs.jsonl", tmp_path / "bugs.ledger.jsonl"
    change = make_diff({"calc/helpers.py": MEAN.encode()}, {"calc/helpers.py": HELPERS.encode()})
    changes = {"1.patch": change, "2.patch": change.replace("calc/helpers.py", "docs/other.py")}

    def open_it(sandbox: LocalSandbox) -> Maker:
        maker = open_maker(sandbox, calc, file, ledger, 0)
        for place in list_places(maker):  # only those that have a reply; the others count as asked
            if place.split("::")[1] not in REPLIES:
                del maker.index.by_function[place]
        return maker

    async def work(url: str) -> list[int]:
        api = ChatApi(url, "tiny", max_tokens=99, seed=0)
        async with LocalSandbox(num_slots=1) as sandbox:
            counts = [await write_bugs(open_it(sandbox), api.ask, "lm_modify", 3, num_programs=1)]
            counts.append(await write_bugs(open_it(sandbox), api.ask, "lm_modify", 3, num_programs=1))
            maker = open_maker(sandbox, calc, file, ledger, 0)
            counts += [await mirror_changes(maker, api.ask, changes), await mirror_changes(maker, api.ask, changes)]
        await api.close()
        return counts

    with chat_server(reply_by_name) as (url, requests):
        assert asyncio.run(work(url)) == [1, 1, 1, 1]
    assert len(requests) == len(REPLIES) + 1  # each function and each change of the package once
    fates = {entry.place.split("::")[-1]: entry.fate for entry in load_ledger(ledger).entries}
    assert fates == {
        "clamp": "kept",
        "total": "unwritten",
        "Counter.up": "unwritten",
        "countdown": "survived",
        "mean": "kept",
        "2.patch": "uncovered",
    }
    by_kind = {instance.kind[0]: instance for instance in load_instances(file)}
    assert by_kind["lm_modify"].fail_to_pass == (tid("high"),)
    assert by_kind["pr_mirror"].fail_to_pass == (tid("mean"),)
    assert by_kind["pr_mirror"].bug_layer(calc) == {"calc/helpers.py": MEAN.encode()}
