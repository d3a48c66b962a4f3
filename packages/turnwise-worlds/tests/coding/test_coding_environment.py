"""Episodes in the real sandbox: policies and controls, what the model reads, how a program is judged."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from coding_tasks import VISIBLE, build_task, open_family, parts, play, run_and_submit, submit

from turnwise.core.types import Message, Scored, ToolCallError, text_message
from turnwise.environments.episodes import play_episode
from turnwise_sandbox.types import Limits
from turnwise_worlds.coding.environment import (
    INVALID_REPLY,
    NO_TESTS,
    NO_TESTS_LEFT,
    PASS,
    CodingEnvironment,
    describe,
    submitted_program,
)
from turnwise_worlds.coding.family import Coding
from turnwise_worlds.coding.judge import Outcome, Test, is_same, run_tests
from turnwise_worlds.coding.policies import MAX_TESTS, run_message, submit_message
from turnwise_worlds.coding.runners import LONG

RIGHT = "def solve(x): return max(x), x[0]"
SORTED = "def solve(x): return max(x), sorted(x)[1]"
"""Right for the first visible example only: of [6, 2, 9] it gives [9, 6], and of [3, 8, 1] [8, 3]."""
FENCED_DOC = 'def f():\n    """\n    ```\n    f()\n    ```\n    """\n'
LAST = "def solve(x): return max(x), x[-1]"


@pytest.fixture(scope="module")
def family() -> Coding:
    return open_family(wall_s=1.0)


@pytest.fixture(scope="module")
def short() -> Coding:
    return open_family(wall_s=1.0, prompt="short", max_tests=2)


def measure(policy: str, count: int, **arguments: Any) -> float:
    """Share of held-out tasks that a policy solves."""
    family = open_family(prompt="short", **arguments)

    async def play_all() -> list[float]:
        played = [
            await play_episode(family, family.task("heldout", index), family.policy(policy), seed=index, max_turns=8)
            for index in range(count)
        ]
        return [each.reward.total for each in played if isinstance(each.reward, Scored)]

    rewards = asyncio.run(play_all())
    assert len(rewards) == count
    return sum(rewards) / count


# ------------------------------------------------------------------------------------------------ policies and controls


def test_the_oracle_solves_both_forms_of_every_kind() -> None:
    assert measure("oracle", 16, stdin=0.3) == 1.0


def test_the_demonstrator_and_chance_rarely_succeed_and_nobody_without_the_tool() -> None:
    picks = {"kinds": {"arithmetic": 1.0}}
    assert measure("naive", 60, **picks) <= 0.3
    assert measure("random", 40, **picks) <= 0.1
    assert measure("oracle", 40, tests="off", **picks) <= 0.3
    assert measure("oracle", 40, tests="shuffled", **picks) <= 0.3
    assert measure("naive", 20, naive_test=1.0, naive_fix=1.0, **picks) == 1.0


def test_the_demonstrator_runs_what_it_corrected_until_it_passes() -> None:
    family = open_family(prompt="short", kinds={"arithmetic": 1.0}, naive_test=1.0, naive_fix=1.0)

    async def play_all() -> list[dict[str, float]]:
        tasks = [family.task("heldout", index) for index in range(12)]
        policy = family.policy("naive")
        rewards = [(await play_episode(family, task, policy, seed=3, max_turns=8)).reward for task in tasks]
        return [parts(reward) for reward in rewards if isinstance(reward, Scored)]

    played = asyncio.run(play_all())
    assert len(played) == 12
    assert max(each["tests"] for each in played) >= 2.0
    assert min(each["green"] for each in played if each["tests"] < MAX_TESTS) == 1.0


# ------------------------------------------------------------------------------------------------ what the model reads


def test_the_first_failing_example_comes_back_in_words_or_in_code(family: Coding, short: Coding) -> None:
    for programs, words, code in (
        ((LAST, RIGHT), "3 8 1 gave 8 1 want 8 3", "[3, 8, 1] gave [8, 1] want [8, 3]"),
        (("def solve(x): return x[9]", RIGHT), "3 8 1 raised IndexError", "[3, 8, 1] raised IndexError"),
        (("def solve(x)", RIGHT), "3 8 1 raised SyntaxError", "[3, 8, 1] raised SyntaxError"),
        (("def other(x): return 1", RIGHT), "3 8 1 raised AttributeError", "[3, 8, 1] raised AttributeError"),
        (("import os; os._exit(0)", RIGHT), "3 8 1 died", "[3, 8, 1] died"),
    ):
        for each, text in ((short, words), (family, code)):
            read, reward = run_and_submit(each, *programs)
            assert read == [text, PASS]
            assert parts(reward) == {"success": 1.0, "tests": 2.0, "red": 1.0, "green": 1.0}


def test_standard_input_is_shown_as_text_and_judged_by_its_words(family: Coding) -> None:
    right = "x = [*map(int, input().split())]\nprint(max(x), x[0])"
    replies = [run_message("print(input())", 0), run_message("print(int('x'))", 1), submit_message(right)]
    read, reward = play(family, replies, build_task("stdin"))
    assert read == ["'3 8 1\\n' gave '3 8 1' want '8 3'", "'3 8 1\\n' raised ValueError"]
    assert reward.total == 1.0


def test_a_long_value_is_cut() -> None:
    text = describe(Test(input=[1], output=2), Outcome(how="gave", what="x" * 1000), "functional", "code")
    assert text == f"1 gave '{'x' * 199}... want 2"


def test_tests_end_at_their_number_and_a_reply_without_a_program_is_told_so(short: Coding) -> None:
    read, reward = run_and_submit(short, LAST, LAST, RIGHT)
    assert read[2] == NO_TESTS_LEFT
    assert parts(reward) == {"success": 1.0, "tests": 2.0, "red": 1.0, "green": 0.0}
    error = ToolCallError(kind="no_action", raw="hm", message="no program")
    read, _ = play(short, [Message(role="assistant", content=(), tool_errors=(error,))])
    assert read == [INVALID_REPLY]


def test_the_controls_hide_the_examples_or_show_those_of_another_task() -> None:
    assert run_and_submit(open_family(tests="off"), LAST)[0] == [NO_TESTS]
    read, _ = run_and_submit(open_family(tests="shuffled"), "def solve(x): return 5")
    assert read == ["[0, 0, 0] gave 5 want [0, 0]"]


# ------------------------------------------------------------------------------------------------ judging


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        (LAST, "wrong"),
        (SORTED, "overfit"),
        ("def solve(x): return sorted(x)[2], x[0]", "overfit"),  # the largest of three
        ("def solve(x):\n    while len(x) > 5: pass\n    return max(x), x[0]", "timeout"),
    ],
)
def test_a_failure_is_0_for_a_named_reason(family: Coding, program: str, reason: str) -> None:
    assert all(sorted(x)[1] == x[0] for x in VISIBLE)
    reward = submit(family, program)
    assert (reward.total, parts(reward)["success"], parts(reward)[reason]) == (0.0, 0.0, 1.0)


def test_an_episode_that_a_limit_ends_submits_nothing(family: Coding) -> None:
    _, reward = play(family, [run_message(RIGHT, 0)])
    assert parts(reward) == {"success": 0.0, "tests": 1.0, "red": 0.0, "green": 0.0, "not_submitted": 1.0}


@pytest.mark.parametrize(
    ("text", "program"),
    [
        ("<answer> def f(): 1 </answer>", "def f(): 1"),
        ("<answer> ```python\ndef f(): 1\n``` </answer>", "def f(): 1\n"),
        ("first\n```python\nwrong\n```\nthen\n```\nright\n```\n", "right\n"),
        ("```py\nx\n```\n<answer> y </answer>", "y"),
        ("x = 1", None),
        ("```python\nx = 1", None),
        ('```python\ns = "```"\nx\n```', 's = "```"\nx\n'),
        ('```python\ndef f():\n    """\n    ```\n    f()\n    ```\n    """\n```', FENCED_DOC),
        ("```python\r\nx\r\n```\r\n", "x\n"),
        ("``` python\nx\n```", "x\n"),
        ("```{.python}\nx\n```", "x\n"),
        ("~~~python\nx\n~~~", "x\n"),
        ("````python\n```\n````", "```\n"),
        ("1. so\n   ```python\n   if x:\n       y\n   ```", "if x:\n    y\n"),
        ("so: ```python\nx\n```", "x\n"),
        ("```python\nx\n```\nprints\n```text\n3\n```\nby\n```bash\npython a.py\n```", "x\n"),
        ("```python\nx```", "x"),
        ("```python\nx```\nor\n```python\ny\n```", "y\n"),
        ("```python\nx = 1\n```python\ny", "x = 1\n"),
    ],
)
def test_what_a_reply_submits(text: str, program: str | None) -> None:
    assert submitted_program([text_message("assistant", text)]) == program
    calling = Message(role="assistant", content=submit_message("x").content, tool_calls=run_message("x", 0).tool_calls)
    assert submitted_program([text_message("assistant", text), calling]) is None
    assert submitted_program([]) is None


@pytest.mark.parametrize(
    ("actual", "wanted", "same"),
    [
        ([1, [2]], [1, [2]], True),
        ([1], [1, 2], False),
        (1, True, False),
        (0, False, False),
        (True, True, True),
        (1.0, 1, True),
        (1.0000001, 1.0, True),
        (1.001, 1.0, False),
        (float("nan"), float("nan"), False),
        ("1", 1, False),
        (1, "1", False),
        (1.0, "1.0", False),
        ({"a": [1]}, {"a": [1]}, True),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        (None, None, True),
        (None, 0, False),
        ([], None, False),
        (1234567890.0, 1234567890, True),
        (1234567890.9, 1234567890, False),
        (500000000500000000.0, 500000000500000001, False),
        (2.9999999, 3, True),
        (1000000.5, 1000000.0, True),
        (1000002, 1000000.0, False),
        (10**400, 1.0, False),
        (1.0, 10**400, False),
        (float("inf"), float("inf"), True),
        (float("inf"), 10**400, False),
    ],
)
def test_values_are_the_same(actual: object, wanted: object, same: bool) -> None:
    assert is_same(actual, wanted) is same


# ------------------------------------------------------------------------------------------------ forks


def test_a_fork_goes_on_by_itself_and_equal_pasts_have_equal_hashes(family: Coding) -> None:
    async def run() -> tuple[list[str], list[Scored]]:
        first, second = (family.build_environment(build_task()) for _ in range(2))
        assert isinstance(first, CodingEnvironment)
        assert isinstance(second, CodingEnvironment)
        for environment in (first, second):
            await environment.reset(build_task(), 0)
            await environment.step(run_message(LAST, 0))
        twin = await first.fork()
        assert twin.state_hash() == first.state_hash() == second.state_hash()
        await twin.step(run_message(RIGHT, 1))
        hashes = [each.state_hash() for each in (first, second, twin)]
        rewards = []
        for environment in (first, second, twin):
            reply = submit_message(RIGHT)
            await environment.step(reply)
            reward = await environment.score([reply], stop=None)  # type: ignore[arg-type]
            assert isinstance(reward, Scored)
            rewards.append(reward)
            await environment.close()
        return hashes, rewards

    (one, same, other), rewards = asyncio.run(run())
    assert one == same != other
    assert [parts(reward)["tests"] for reward in rewards] == [1.0, 1.0, 2.0]
    assert [parts(reward)["green"] for reward in rewards] == [0.0, 0.0, 1.0]


CALLED = {
    "names that every harness imports": (
        "class Solution:\n    def solve(self, x: List[int]) -> Optional[List[int]]:\n        heap = x[:]\n"
        "        heapify(heap)\n        return [nlargest(1, heap)[0], deque(x)[0]]"
    ),
    "modules, np among them": (
        "def solve(x): return [np.array(x).max(), collections.Counter({x[0]: 1}).most_common(1)[0][0]]"
    ),
    "a future import": "from __future__ import annotations\ndef solve(x: NoSuchName): return [max(x), x[0]]",
    "names of its own before those": "def gcd(x): return max(x)\ndef solve(x): return [gcd(x), x[0]]",
    "the method before a helper of the name": (
        "def solve(x, y): return y\nclass Solution:\n    def solve(self, x): return [max(x), solve(1, x[0])]"
    ),
    "a deque": "def solve(x): return deque([max(x), x[0]])",
    "a generator": "def solve(x):\n    yield max(x)\n    yield x[0]",
    "a map": "def solve(x): return map(int, [max(x), x[0]])",
    "numbers of numpy": "import numpy\ndef solve(x): return [numpy.int64(max(x)), numpy.float32(x[0])]",
    "an array": "import numpy\ndef solve(x): return numpy.array([max(x), x[0]])",
    "decimals and fractions": "def solve(x): return Decimal(max(x)), Fraction(x[0])",
    "deep recursion": (
        "def depth(n): return n and 1 + depth(n - 1)\ndef solve(x): return [max(x), x[0] + depth(9000) - 9000]"
    ),
    "an argument that it changed": "def solve(x):\n    a = max(x), x[0]\n    x.clear()\n    return a",
}


@pytest.mark.parametrize("name", CALLED)
def test_a_right_program_in_the_style_of_its_data_passes(family: Coding, name: str) -> None:
    assert parts(submit(family, CALLED[name]))["success"] == 1.0


PRINTED = {
    "names that every harness imports": "x = list(map(int, input().split()))\nprint(nlargest(1, x)[0], deque(x)[0])",
    "the main module": (
        "import sys\ndef main():\n    x = [*map(int, sys.stdin.readline().split())]\n    print(max(x), x[0])\n"
        "if __name__ == '__main__' and sys.modules['__main__'].main is main:\n    main()"
    ),
    "classes that pickle": (
        "import pickle\nfrom dataclasses import dataclass\n@dataclass\nclass P:\n    x: list\n"
        "p = pickle.loads(pickle.dumps(P([*map(int, input().split())])))\nprint(max(p.x), p.x[0])"
    ),
    "an exit with status 0": "x = [*map(int, input().split())]\nprint(max(x), x[0])\nexit()",
    "a number of 5000 digits on the way": "x = [*map(int, input().split())]\nlen(str(10**5000))\nprint(max(x), x[0])",
    "input replaced": "import sys\ninput = sys.stdin.readline\nx = [*map(int, input().split())]\nprint(max(x), x[0])",
}


@pytest.mark.parametrize("name", PRINTED)
def test_a_right_program_that_prints_passes(family: Coding, name: str) -> None:
    assert parts(submit(family, PRINTED[name], "stdin"))["success"] == 1.0


def judge(family: Coding, program: str, given: list[Any], wanted: Any, rules: tuple[Any, ...] = ()) -> Outcome:
    """The outcome of one call of `f`."""
    test = Test(input=given, output=wanted)
    limits = Limits(wall_s=2.0)
    running = run_tests(family._runs, program, [test], form="functional", entry="f", limits=limits, seed=0, rules=rules)
    return asyncio.run(running)[0]


def test_what_json_lacks_becomes_what_it_has(family: Coding) -> None:
    for program, wanted in (
        ("def f(x): return {3, 1, 2}", [1, 2, 3]),
        ("def f(x): return {'b', 'a', 'c'}", ["a", "b", "c"]),
        ("def f(x): return {frozenset([2, 1]), frozenset([0, 5])}", [[0, 5], [1, 2]]),
        ("def f(x): return {1: 2}", {"1": 2}),
        ("def f(x): return Counter('aab')", {"a": 2, "b": 1}),
        ("def f(x): return np.bool_(True)", True),
        ("def f(x): return (i * i for i in range(3))", [0, 1, 4]),
    ):
        assert judge(family, program, [0], wanted).how == "passed"
    shown = judge(family, "def f(x): return object", [0], 1)
    assert shown == Outcome(how="gave", what="<class 'object'>")
    assert judge(family, "def f(x): return object", [0], "<class 'object'>").how == "gave"
    assert judge(family, "def f(x): return b'ab'", [0], [97, 98]).how == "gave"


def test_an_argument_is_the_result_only_where_the_row_says_so(family: Coding) -> None:
    program = "class Solution:\n    def f(self, x): x.sort()"
    assert judge(family, program, [[3, 1]], [1, 3]) == Outcome(how="gave", what=None)
    assert judge(family, program, [[3, 1]], [1, 3], ("in_place",)).how == "passed"
    assert judge(family, "def f(x): pass", [[3, 1]], [1, 3], ("in_place",)) == Outcome(how="gave", what=[3, 1])
    assert judge(family, "def f(x): return x and [1, 3]", [[3, 1]], [1, 3], ("in_place",)).how == "passed"


def test_whole_keys_are_numbers_only_where_the_row_says_so(family: Coding) -> None:
    program = "def f(x): return sum(x) if all(type(key) is int for key in x) else None"
    assert judge(family, program, [{"1": 0, "-2": 0}], -1).how == "gave"
    assert judge(family, program, [{"1": 0, "-2": 0}], -1, ("whole_keys",)).how == "passed"
    assert judge(family, "def f(x): return x['1']", [{"1": 5, "b": 0}], 5, ("whole_keys",)).how == "passed"


def test_long_numbers_go_in_and_out(family: Coding) -> None:
    digits = "7" * 5000
    assert judge(family, "def f(x): return x + 1", [{LONG: digits}], {LONG: digits[:-1] + "8"}).how == "passed"
    assert judge(family, "def f(x): return x + 2", [{LONG: digits}], {LONG: digits[:-1] + "8"}).how == "gave"
    gave = Outcome(how="gave", what={LONG: digits})
    text = describe(Test(input=[{LONG: digits}], output=1), gave, "functional", "code")
    assert text == f"{'7' * 200}... gave {'7' * 200}... want 1"


def test_half_a_surrogate_pair_is_no_python_and_is_shown_escaped(family: Coding) -> None:
    assert judge(family, "def f(x): return '\ud800'", [0], "?") == Outcome(how="raised", what="SyntaxError")
    gave = judge(family, "def f(x): return chr(0xd800)", [0], "?")
    assert gave == Outcome(how="gave", what="\ud800")
    assert describe(Test(input=[0], output="?"), gave, "functional", "words") == "0 gave \\ud800 want ?"


def test_an_exception_of_a_package_is_named_by_its_class(family: Coding) -> None:
    tests = [Test(input="x", output="1")]
    running = run_tests(
        family._runs, "import json; json.loads(input())", tests, form="stdin", entry="", limits=Limits(), seed=0
    )
    assert asyncio.run(running) == [Outcome(how="raised", what="JSONDecodeError")]


def test_a_row_with_one_test_has_nothing_to_run_on(family: Coding) -> None:
    task = build_task("stdin")
    task = replace(task, payload={**task.payload, "visible": []}, id="")
    assert play(family, [run_message("print(1)", 0)], task)[0] == [NO_TESTS]


def run_calls(family: Coding, program: str) -> list[str]:
    """The outcomes of f(0) to f(3), each of which may take a second."""
    tests = [Test(input=[number], output=number) for number in range(4)]
    limits = Limits(wall_s=1.0)
    running = run_tests(family._runs, program, tests, form="functional", entry="f", limits=limits, seed=0)
    return [outcome.how for outcome in asyncio.run(running)]


def test_each_call_has_the_time_of_the_limit(family: Coding) -> None:
    slow = "import time\ndef f(x):\n    time.sleep({})\n    return x"
    assert run_calls(family, slow.format("0.3")) == ["passed"] * 4  # 1.2 s together
    assert run_calls(family, slow.format("60 if x == 1 else 0")) == ["passed", "timeout", "timeout", "timeout"]


@pytest.mark.slow
def test_a_call_that_resists_the_timer_is_late_all_the_same(family: Coding) -> None:
    late = ["passed", "timeout", "timeout", "timeout"]
    stopped = "import signal\ndef f(x):\n    signal.setitimer(signal.ITIMER_REAL, 0)\n    while x: pass\n    return x"
    assert run_calls(family, stopped) == late
    caught = "def f(x):\n    try:\n        while x: pass\n    except BaseException: pass\n    return x"
    assert run_calls(family, caught) == late
