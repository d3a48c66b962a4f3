"""Whole episodes: policies, endings, both protocols, forks, and trees that change on disk."""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tiny
from driving import CORE, RIGHT, SUBMIT, Call, bash, make_calls, open_episode, parts, play

from turnwise.core.errors import ConfigError, DataError, EnvironmentFault, SandboxError
from turnwise.core.types import Invalid, Message, Reward, Scored, StopReason, Task, text_message
from turnwise.environments.episodes import Played, play_episode
from turnwise_swe.environment.arguments import SweArguments
from turnwise_swe.environment.cases import is_installed
from turnwise_swe.environment.family import Swe
from turnwise_swe.environment.mini import MARKER, MiniEnvironment, read_commands
from turnwise_swe.environment.places import find_places, read_changes
from turnwise_swe.repositories import grading
from turnwise_swe.repositories.diffs import apply_exactly, make_diff


def played(family: Swe, policy: str, split: str = "heldout", seed: int = 0) -> Played:
    task = family.task("train" if split == "train" else "heldout", 0)
    return asyncio.run(play_episode(family, task, family.policy(policy), seed=seed, max_turns=8))


# ------------------------------------------------------------------------------------------------ policies and endings


@pytest.mark.parametrize(
    "changes",
    [{}, *({"tools": [name, "submit"]} for name in ("edit", "edit_diff", "bash")), {"protocol": "mini"}],
)
def test_the_oracle_repairs_with_the_tools_that_there_are(arguments: dict[str, Any], changes: dict[str, Any]) -> None:
    reward = played(Swe(**{**arguments, **changes}), "oracle").reward
    assert isinstance(reward, Scored)
    assert reward.total == 1.0
    assert parts(reward)["resolved"] == parts(reward)["fixed"] == 1.0
    assert parts(reward)["forgeable"] == 0.0


def test_hidden_tests_are_not_in_the_tree_and_grade_all_the_same(arguments: dict[str, Any]) -> None:
    family = Swe(**arguments, hide_tests=True)
    shown, reward = play(
        family,
        bash("ls tests; git log; grep -rn test_add . || echo none"),
        ("test", {"tests": "tests/test_core.py"}),
        RIGHT,
        bash("mkdir -p tests; echo 'def test_add(): pass' > tests/test_core.py"),
        SUBMIT,
    )
    assert "test_core.py" not in shown[0]
    assert shown[0].endswith("none")
    assert shown[1].startswith("error: there is no test")
    assert parts(reward)["resolved"] == 1.0
    assert played(family, "oracle").reward.total == 1.0  # type: ignore[union-attr]
    with pytest.raises(ConfigError, match="hide_tests=true hides"):
        Swe(**arguments, hide_tests=True, prompt="oracle")


@pytest.mark.slow
def test_the_demonstrator_is_right_as_often_as_it_is_told(arguments: dict[str, Any]) -> None:
    wrong, right = (played(Swe(**{**arguments, "naive_right": share}), "naive") for share in (0.0, 1.0))
    assert (parts(wrong.reward)["no_edit"], parts(right.reward)["resolved"]) == (1.0, 1.0)
    assert parts(right.reward)["tested_first"] == 1.0


def test_the_oracle_prompt_shows_a_failing_test_and_the_function_with_the_bug(arguments: dict[str, Any]) -> None:
    task = Swe(**arguments, prompt="oracle", max_lines=2).task("heldout", 0)
    test = "tests/test_core.py::test_add[1]"
    assert task.prompt[0].text == (
        f"The test {test} fails. The bug is here:\n\nsrc/sums/core.py\n4 def add(a, b):\n5     return a - b"
    )
    with pytest.raises(DataError, match="has no instance"):
        Swe(**arguments, prompt="oracle", max_lines=1).task("heldout", 0)


def test_instances_of_one_package_need_those_of_a_second(arguments: dict[str, Any], tmp_path: Path) -> None:
    one = tmp_path / "one.jsonl"
    one.write_text(Path(arguments["instances"]).read_text().split("\n")[0])
    with pytest.raises(DataError, match=r"the file has only sums: .* held out as a whole, so add instances"):
        Swe(**{**arguments, "instances": str(one)}).task("train", 0)


@pytest.mark.slow
def test_a_demonstrator_that_is_shown_the_place_edits_until_the_test_passes(arguments: dict[str, Any]) -> None:
    shown = {**arguments, "prompt": "oracle", "tools": ["test", "edit_lines", "submit"], "naive_test": 1.0}
    names = []
    for share in (0.0, 1.0):
        replies = played(Swe(**shown, naive_right=share), "naive").replies
        names.append([call.name for reply in replies for call in reply.tool_calls])
    # Writing a line as it is never makes the test pass.
    assert names == [[*["edit_lines", "test"] * 3, "submit"], ["edit_lines", "test", "submit"]]


@pytest.mark.parametrize(
    ("calls", "ending"),
    [
        ((RIGHT,), "not_submitted"),
        ((SUBMIT,), "no_edit"),
        ((bash("chmod +x src/sums/core.py; mkdir empty"), SUBMIT), "no_edit"),
        ((bash("rm -r tests; echo 'import pytest' > conftest.py"), SUBMIT), "protected"),
        ((bash("python3 -m pytest -q; mkdir -p .pytest_cache; touch .pytest_cache/x .coverage"), SUBMIT), "no_edit"),
        ((("edit", {"path": CORE, "old": "a - b", "new": "b - a"}), SUBMIT), "unresolved"),
        ((bash(f"rm {CORE}"), SUBMIT), "no_evidence"),
        (
            (("edit", {"path": CORE, "old": '"""Small', "new": 'import os\nos._exit(0)\n"""Small'}), SUBMIT),
            "no_evidence",
        ),
    ],
)
def test_what_fails_is_0_with_its_name(family: Swe, calls: tuple[Call, ...], ending: str) -> None:
    _, reward = play(family, *calls)
    assert isinstance(reward, Scored)
    assert (reward.total, parts(reward)["success"], parts(reward)[ending]) == (0.0, 0.0, 1.0)


def test_tests_that_the_agent_changes_do_not_count(family: Swe) -> None:
    _, reward = play(family, RIGHT, bash("echo 'def test_x(): assert False' > tests/test_core.py"), SUBMIT)
    assert parts(reward)["resolved"] == 1.0


def test_the_trail_says_what_was_done(family: Swe) -> None:
    test = ("test", {"tests": "tests/test_core.py::test_total"})
    wrong = ("edit", {"path": CORE, "old": "a - b", "new": "b - a"})
    _, reward = play(family, test, wrong, test, ("edit", {"path": CORE, "old": "none", "new": "x"}))
    got = {name: parts(reward)[name] for name in ("edits", "tests", "tested_first", "red_after_edit")}
    assert got == {"edits": 1.0, "tests": 2.0, "tested_first": 1.0, "red_after_edit": 1.0}


# ------------------------------------------------------------------------------------------------ infrastructure


@pytest.mark.slow
def test_a_tree_that_changes_under_an_episode_counts_for_nothing(arguments: dict[str, Any], tmp_path: Path) -> None:
    library = tmp_path / "library"
    shutil.copytree(arguments["library"], library, symlinks=True)
    family = Swe(**{**arguments, "library": str(library)})
    (tree,) = (library / "trees").iterdir()

    async def run() -> tuple[str, Reward]:
        environment = await open_episode(family)
        await make_calls(environment, [RIGHT])
        (tree / CORE).write_text("raise ValueError\n")
        (shown,) = await make_calls(environment, [bash(f"sed -n 5p {CORE}")])
        await make_calls(environment, [SUBMIT])
        reward = await environment.score([], StopReason.DONE)
        await environment.close()
        return shown.observation, reward

    shown, reward = asyncio.run(run())
    assert shown == "    return a + b"
    assert isinstance(reward, Invalid)
    assert "was changed on disk" in reward.reason


def test_grading_that_fails_is_invalid(family: Swe, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: object, **__: object) -> object:
        raise SandboxError("no cell starts")

    monkeypatch.setattr(grading, "run_separately", fail)
    _, reward = play(family, RIGHT, SUBMIT)
    assert reward == Invalid(reason="grading failed: no cell starts", retryable=True)


def test_a_sandbox_that_fails_is_no_failure_of_the_model(arguments: dict[str, Any]) -> None:
    family = Swe(**{**arguments, "sandbox_args": {"level": "none"}})  # refused without allow_unsafe
    with pytest.raises((EnvironmentFault, RuntimeError, ConfigError), match="allow_unsafe"):
        play(family, bash("ls"))


# ------------------------------------------------------------------------------------------------ forks and replays


def test_a_fork_goes_on_by_itself_with_files_and_debugger(family: Swe) -> None:
    async def run() -> list[str]:
        environment = await open_episode(family)
        await make_calls(
            environment,
            [
                bash("printf 'x = 1\\ny = 2\\n' > script.py; rm pyproject.toml"),
                ("pdb", {"target": "script.py", "command": "n"}),
                bash("echo 'z = 3' > script.py"),
            ],
        )
        before = environment.state_hash()
        twin = await environment.fork()
        assert twin.state_hash() == before
        again = await twin.fork()
        records = await make_calls(twin, [("pdb", {"command": "p x"}), RIGHT, bash("ls; cat script.py")])
        (other,) = await make_calls(environment, [bash(f"sed -n 5p {CORE}; touch made")])
        assert len({before, twin.state_hash(), environment.state_hash()}) == 3
        await make_calls(twin, [SUBMIT])
        await environment.close()
        (late,) = await make_calls(again, [bash("ls")])
        rewards = [await each.score([], StopReason.DONE) for each in (twin, again)]
        for each in (twin, again):
            await each.close()
        assert [parts(reward)["success"] for reward in rewards] == [1.0, 0.0]
        return [*(record.observation for record in records), other.observation, late.observation]

    shown = asyncio.run(run())
    assert shown[0] == "1\n(Pdb) "
    assert shown[2].split() == ["script.py", "src", "tests", "z", "=", "3"]
    assert shown[3] == "    return a - b"
    assert shown[4].split() == ["script.py", "src", "tests"]


@pytest.mark.slow
def test_the_same_calls_make_the_same_episode(family: Swe) -> None:
    test = ("test", {"tests": "tests/test_core.py::test_total"})
    one, other = (play(family, test, bash("ls; env | sort"), RIGHT, SUBMIT) for _ in range(2))
    assert one == other


def test_two_episodes_at_once_do_not_see_each_other(family: Swe) -> None:
    async def run() -> list[str]:
        pair = [await open_episode(family) for _ in range(2)]
        await asyncio.gather(*(make_calls(each, [bash(f"echo {n} > mine")]) for n, each in enumerate(pair)))
        shown = [(await make_calls(each, [bash("cat mine")]))[0].observation for each in pair]
        for each in pair:
            await each.close()
        return shown

    assert asyncio.run(run()) == ["0", "1"]


# ------------------------------------------------------------------------------------------------ mini-swe-agent


def replies(*commands: str) -> list[Message]:
    return [text_message("assistant", f"THOUGHT: next.\n\n```mswea_bash_command\n{each}\n```") for each in commands]


def converse(family: Swe, messages: list[Message]) -> tuple[list[Message], bool, Reward]:
    """What comes back, whether the episode is over, and the reward."""

    async def run() -> tuple[list[Message], bool, Reward]:
        task = family.task("train", 0)
        environment = family.build_environment(task)
        assert isinstance(environment, MiniEnvironment)
        opening = await environment.reset(task, 0)
        assert opening.tools == ()
        assert [message.role for message in opening.messages] == ["system", "user"]
        back: list[Message] = []
        done = False
        for message in messages:
            result = await environment.step(message)
            back, done = [*back, *result.observations], result.done
        reward = await environment.score(messages, StopReason.DONE if done else StopReason.MAX_TURNS)
        await environment.close()
        return back, done, reward

    return asyncio.run(run())


@pytest.fixture(scope="module")
def mini(arguments: dict[str, Any]) -> Swe:
    return Swe(**{**arguments, "protocol": "mini", "command_s": 3.0, "max_observation_chars": 1000})


def test_minis_observations_are_status_and_output_in_tags(mini: Swe) -> None:
    back, done, reward = converse(
        mini,
        replies(
            "echo hello; echo problem >&2; exit 3",
            "cd src && export NAME=1",
            'pwd | tail -c 5; echo "[$NAME]"',
            "seq 1 1000",
            "sleep 100",
            f"sed -i 's/a - b/a + b/' {CORE}",
            f"cat nothing && echo {MARKER}",
            f"echo 'a line before'; echo {MARKER}",
            f"echo {MARKER} && ls",
        ),
    )
    assert all(message.role == "user" and message.tool_call_id is None for message in back)
    texts = [message.text for message in back]
    assert texts[0] == "<returncode>3</returncode>\n<output>\nhello\nproblem\n</output>"
    assert texts[1] == "<returncode>0</returncode>\n<output>\n</output>"
    assert texts[2] == "<returncode>0</returncode>\n<output>\nwork\n[]\n</output>"
    head, _, tail = texts[3].partition("<output_tail>\n")
    assert head.startswith("<returncode>0</returncode>\n<warning>\n")
    # 1 to 1000, each with its line end, are 3,893 characters; 500 of each end are kept.
    assert "\n</output_head>\n<elided_chars>\n2893 characters elided\n</elided_chars>\n" in head
    assert tail == "".join(f"{n}\n" for n in range(1, 1001))[-500:] + "\n</output_tail>"
    assert texts[4].startswith("<exception>it ran longer than 3 s and was interrupted</exception>\n<returncode>-1<")
    assert texts[6].startswith("<returncode>1</returncode>")
    assert MARKER in texts[7]
    assert len(texts) == 8
    assert done
    assert parts(reward)["resolved"] == 1.0


def test_mini_takes_exactly_one_command_and_gives_up_after_three_errors(mini: Swe) -> None:
    two = text_message("assistant", "```bash\nls\n```\n```bash\npwd\n```")
    none = text_message("assistant", "I am done.")
    back, done, reward = converse(mini, [none, two, *replies("true"), none, none, none])
    assert "found 0" in back[0].text
    assert "found 2" in back[1].text
    assert back[2].text.startswith("<returncode>0</returncode>")
    assert len(back) == 5  # the third error in a row ends it
    assert done
    assert parts(reward)["not_submitted"] == 1.0


def test_mini_reads_both_versions_of_the_block() -> None:
    assert read_commands("x\n```bash\nls -la\n```") == ["ls -la"]
    assert read_commands("```mswea_bash_command\ncat <<'E' > a\nx = 1\n\nE\n```") == ["cat <<'E' > a\nx = 1\n\nE"]
    assert read_commands("```bash\nan example\n```\n```mswea_bash_command\nls\n```") == ["ls"]
    assert read_commands("```python\n1\n```") == []


# ------------------------------------------------------------------------------------------------ tasks


def test_packages_outside_swe_smith_are_held_out(arguments: dict[str, Any]) -> None:
    family = Swe(**arguments)
    train, heldout = family.task("train", 0), family.task("heldout", 0)
    assert train.payload["instance"]["repo"] == "sums"
    assert heldout.payload["instance"]["repo"] == "other"
    assert family.task("train", 5).id == train.id  # the training split starts over
    with pytest.raises(IndexError):
        family.task("heldout", 1)
    assert heldout.prompt[0].text.endswith("Other sums are wrong.")
    assert "a - b" not in heldout.prompt[0].text
    with pytest.raises(DataError, match=r"the split 'train' has no instances; .*other, sums"):
        Swe(**{**arguments, "heldout": None}).task("heldout", 0)


def test_what_cannot_be_loaded_is_said(arguments: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="instances='' names no file"):
        Swe().task("train", 0)
    with pytest.raises(ConfigError, match="lacks 'submit'"):
        Swe(tools=["bash"])
    with pytest.raises(ConfigError, match="leave no time within"):
        Swe(tool_timeout_s=10.0)
    with pytest.raises(ConfigError, match="is not on this machine"):
        Swe(**{**arguments, "library": "/nonexistent"}).task("train", 0)
    stranger = Task(environment="swe", prompt=(), payload={"instance": {"instance_id": "x"}})
    with pytest.raises(ConfigError, match="belongs to instance 'x', which"):
        Swe(**arguments).build_environment(stranger)
    assert is_installed("pytest")
    monkeypatch.setattr("turnwise_swe.environment.cases.is_installed", lambda name: name == "other")
    with pytest.raises(ConfigError, match="which is also installed in this Python"):
        Swe(**arguments).task("train", 0)
    assert Swe(**arguments, allow_installed=True).task("train", 0)


def test_texts_are_as_many_as_asked_for(family: Swe) -> None:
    assert len(family.texts(2)) == 2
    assert family.texts(3) == family.texts(3)
    assert SweArguments().protocol == "tools"


def test_the_place_of_a_bug_is_the_innermost_function_with_its_decorators() -> None:
    text = "import os||@cache|def f(x):|    def g():|        return 1|    return x||y = 2|z = 3"
    lines = text.split("|")
    source = "\n".join(lines) + "\n"
    whole = [(5, "        return 1", "        return 2"), (6, "    return x", "    return -x"), (8, "y = 2", "y = 1")]
    places = []
    for number, old, new in whole:
        bug = "\n".join([*lines[:number], new, *lines[number + 1 :]]) + "\n"
        patch = make_diff({"f.py": source.encode()}, {"f.py": bug.encode()})
        instance = replace(tiny.INSTANCE, patch=patch)
        assert lines[number] == old
        [place] = find_places(instance, {"f.py": bug.encode()})
        places.append((place.first, len(place.lines), new in place.lines))
    # g; f with its decorator; four lines around what is in no function, of which one follows.
    assert places == [(5, 2, True), (3, 5, True), (5, 6, True)]
    # A file that is no Python has no functions: "one" stands in the second of ten lines.
    notes = "".join(f"line {n} is (" + "\n" for n in range(10)).encode()
    patch = make_diff({"notes.rst": notes}, {"notes.rst": notes.replace(b"line 1", b"one")})
    layer = {"notes.rst": notes.replace(b"line 1", b"one")}
    [place] = find_places(replace(tiny.INSTANCE, patch=patch), layer)
    assert (place.first, place.lines[1], len(place.lines)) == (1, "one is (", 6)


def test_a_gold_patch_as_lines() -> None:
    before = b"".join(b"%d\n" % n for n in range(1, 21))
    after = before.replace(b"3\n", b"three\n", 1).replace(b"17\n", b"").replace(b"9\n1", b"9\nnew\n1", 1)
    patch = make_diff({"f": before}, {"f": after})
    changes = read_changes(patch)
    assert changes is not None
    lines = before.decode().splitlines(keepends=True)
    for change in changes:
        lines[change.first - 1 : change.last] = [change.text]
    assert "".join(lines).encode() == after == apply_exactly(patch, {"f": before})["f"]
    assert all(line.text == before.decode().splitlines(keepends=True)[line.first - 1] for line in changes[0].lines)
    assert read_changes(make_diff({}, {"new": b"x\n"})) is None
