"""What every environment family owes: the built-in ones, the example's, and a mixture of them, through one file."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import pytest

from turnwise.core.checked import to_single
from turnwise.core.errors import EnvironmentFault
from turnwise.core.protocols import (
    Environment,
    EnvironmentFamily,
    ForkableEnvironment,
    GoldAnswers,
    Opening,
    Split,
    StatefulEnvironment,
)
from turnwise.core.types import (
    Message,
    Reward,
    Scored,
    StopReason,
    Task,
    ToolCall,
    ToolCallError,
    ToolRecord,
    Trajectory,
    TrajectoryId,
    text_message,
)
from turnwise.environments.classes.family import ClassFamily
from turnwise.environments.math_code.family import MathCode
from turnwise.environments.mcp.family import McpTasks
from turnwise.environments.mixture import Member, mix_families
from turnwise.environments.registry import load_family
from turnwise.environments.search_qa.family import SearchQA
from turnwise.evaluation.summary import is_success
from turnwise_sandbox.types import Execution, Limits, Program

T = TypeVar("T")
MAX_TURNS = 16


class PretendSandbox:
    """Runs the arithmetic that scripted policies write, in this process: `print` and `pow` are all it knows."""

    async def run(self, program: Program, limits: Limits) -> Execution:
        shown: list[str] = []
        names = {"print": lambda value: shown.append(str(value)), "pow": pow, "sum": sum, "min": min, "range": range}
        try:
            eval(str(program.code), {"__builtins__": {}}, names)
        except (ArithmeticError, NameError, SyntaxError, TypeError, ValueError) as cause:
            error = f"{type(cause).__name__}: {cause}".encode()
            return Execution(stdout=b"", stderr=error, exit_code=1)
        return Execution(stdout=("\n".join(shown) + "\n").encode(), stderr=b"", exit_code=0)

    async def close(self) -> None: ...


class PretendTests:
    """Calls the functions that scripted policies leave, in this process."""

    async def run(self, program: Program, limits: Limits) -> Execution:
        modules: dict[str, dict[str, Any]] = {}
        for path, source in program.files.items():
            exec(source, modules.setdefault(path.removesuffix(".py"), {}))
        lines = []
        for number, (module, function, arguments) in enumerate(json.loads(program.stdin)):
            try:
                outcome: list[Any] = ["gave", modules[module][function](*arguments)]
            except ZeroDivisionError:
                outcome = ["raised", "ZeroDivisionError", None]
            lines.append(json.dumps([number, outcome]))
        return Execution(stdout="\n".join(lines).encode(), stderr=b"", exit_code=0)

    async def close(self) -> None: ...


class PretendPrograms:
    """Runs the programs that scripted policies write, in this process."""

    async def run(self, program: Program, limits: Limits) -> Execution:
        request = json.loads(program.stdin)
        home: dict[str, Any] = {}
        try:
            exec(program.files["solution.py"], home)
            values = [home[request["entry"]](*arguments) for arguments in request["calls"]]
        except (NameError, SyntaxError, KeyError) as cause:
            return Execution(stdout=b"", stderr=type(cause).__name__.encode(), exit_code=1)
        lines = [json.dumps([number, ["gave", value]]) for number, value in enumerate(values)]
        return Execution(stdout="\n".join(lines).encode(), stderr=b"", exit_code=0)

    async def close(self) -> None: ...


def load_example() -> Any:
    """`VaultFamily` of the examples."""
    path = Path(__file__).parents[2] / "examples" / "own_environment.py"
    spec = spec_from_file_location("own_environment", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.VaultFamily


class Halving:
    """A plain class: find a number from 1 to 31 in five guesses."""

    def reset(self, seed: int) -> str:
        self.low, self.high, self.tries, self.right = 1, 31, 0, False
        self.secret = Random(seed).randint(1, 31)
        return "Guess my number from 1 to 31."

    def guess(self, number: int) -> str:
        """Guess the number.

        Args:
            number: The guess.
        """
        self.tries, self.right = self.tries + 1, number == self.secret
        self.done = self.right or self.tries == 5
        if number < self.secret:
            self.low = max(self.low, number + 1)
            return "higher"
        self.high = min(self.high, number - 1)
        return "lower"

    def get_reward(self) -> float:
        return float(self.right)

    def _oracle(self) -> tuple[str, dict[str, int]]:
        return "guess", {"number": (self.low + self.high) // 2}


MATH: dict[str, Any] = {"sandbox": f"{__name__}:PretendSandbox"}
REPAIR: dict[str, Any] = {"sandbox": f"{__name__}:PretendTests"}
CODING: dict[str, Any] = {"sandbox": f"{__name__}:PretendPrograms", "prompt": "short", "kinds": {"arithmetic": 1.0}}
LINKED: dict[str, Any] = {"prompt": "short", "bugs": 2, "calls": True}
SEARCH: dict[str, Any] = {"kinds": {"1hop": 1.0, "2hop": 1.0}}


@dataclass(frozen=True, kw_only=True)
class Case:
    """A family, and what its tests need to know of it."""

    build: Callable[..., EnvironmentFamily]
    controls: tuple[dict[str, Any], ...] = ()
    """Arguments under which the oracle must fail."""
    gold: tuple[str, ...] = ()
    """Keys of the payload that only scoring may read, and what the gold answer is made of."""
    control_tasks: Callable[[Task], bool] = field(default=lambda task: True)
    """Tasks that a control must spoil."""
    max_turns: int = MAX_TURNS
    """Replies after which an episode is stopped."""


def build_mixture(**changes: Any) -> EnvironmentFamily:
    return mix_families(
        {
            "maths": Member(family=MathCode(**MATH), weight=1),
            "search": Member(family=SearchQA(**SEARCH, **changes), weight=2),
        }
    )


ROWS = tempfile.TemporaryDirectory(prefix="turnwise-mcp-rows-")


def build_mcp(**changes: Any) -> EnvironmentFamily:
    """A server that repeats what it is told."""
    folder = Path(ROWS.name)
    for split in ("train", "heldout"):
        words = [f"{split}{number}" for number in range(200)]
        rows = [{"question": f"echo {word}", "answer": word, "calls": [["echo", {"text": word}]]} for word in words]
        (folder / f"{split}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    server = Path(__file__).parents[1] / "unit" / "tools" / "mcp" / "hostile_server.py"
    return McpTasks(
        servers={"echo": {"command": "python", "args": ["-S", str(server), "fine"]}},
        scope="run",
        train_path=str(folder / "train.jsonl"),
        heldout_path=str(folder / "heldout.jsonl"),
        **changes,
    )


def build_call_rows(**changes: Any) -> EnvironmentFamily:
    """Two functions, one of which plays a song that a request names."""
    functions = [
        {"name": name, "parameters": {"type": "dict", "properties": {"song": {"type": "string"}}, "required": ["song"]}}
        for name in ("music.play", "music.buy")
    ]
    for split in ("train", "heldout"):
        words = [f"{split}{number}" for number in range(200)]
        rows = [
            {
                "id": f"multiple_{number}",
                "question": [[{"role": "user", "content": f"Play {word} please ."}]],
                "function": functions,
                "ground_truth": [{"music.play": {"song": [word]}}],
            }
            for number, word in enumerate(words)
        ]
        (Path(ROWS.name) / f"calls_{split}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    paths = {f"{split}_path": str(Path(ROWS.name) / f"calls_{split}.jsonl") for split in ("train", "heldout")}
    return load_family("tool_calls", {"mode": "files"} | paths | changes)


OF_WORLDS = {"coding", "repair", "repair_linked", "tool_calls", "tool_calls_files"}
CASES = {
    "coding": Case(
        build=lambda **changes: load_family("coding", CODING | changes),
        controls=({"tests": "off"}, {"tests": "shuffled"}),
        gold=("hidden", "parts"),
    ),
    "math_code": Case(
        build=lambda **changes: MathCode(**MATH, **changes), controls=({"code": False},), gold=("answers",)
    ),
    "search_qa": Case(
        build=lambda **changes: SearchQA(**SEARCH, **changes),
        controls=({"search": "off"}, {"search": "shuffled"}),
        gold=("answers", "evidence"),
    ),
    "repair": Case(
        build=lambda **changes: load_family("repair", {"prompt": "short"} | REPAIR | changes),
        controls=({"tests": "off"}, {"tests": "shuffled"}),
        gold=("bug",),
    ),
    "repair_linked": Case(
        build=lambda **changes: load_family("repair", LINKED | REPAIR | changes),
        controls=({"tests": "off"}, {"tests": "shuffled"}),
        gold=("bug", "other_bugs"),
        max_turns=24,
    ),
    "tool_calls": Case(
        build=lambda **changes: load_family("tool_calls", {"prompt": "short"} | changes),
        controls=({"schema": "shuffled"}, {"schema": "blanked"}),
        gold=("calls", "missing"),
        control_tasks=lambda task: bool(task.payload["calls"]),
    ),
    "tool_calls_files": Case(build=build_call_rows, gold=("calls",)),
    # The vault's secret is the prompt's letters backwards, and the tool has to know it.
    "example": Case(build=load_example()),
    "plain_class": Case(build=lambda **changes: ClassFamily(Halving, **changes)),
    "mixture": Case(
        build=build_mixture,
        controls=({"search": "off"},),
        gold=("answers", "evidence"),
        control_tasks=lambda task: task.environment == "search",
    ),
}
if not find_spec("turnwise_worlds"):  # the core alone
    CASES = {name: case for name, case in CASES.items() if name not in OF_WORLDS}
if find_spec("mcp"):  # an optional extra
    CASES["mcp"] = Case(build=build_mcp, gold=("answer", "calls"))
WITH_CONTROLS = [(name, changes) for name, case in CASES.items() for changes in case.controls]


@pytest.fixture(params=CASES, scope="module")
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


@dataclass(frozen=True, kw_only=True)
class Played:
    """One episode."""

    opening: Opening
    replies: list[Message]
    observations: list[Message]
    records: list[ToolRecord]
    states: list[str | None]
    reward: Reward


def state_of(environment: Environment) -> str | None:
    return environment.state_hash() if isinstance(environment, StatefulEnvironment) else None


async def play(
    family: EnvironmentFamily, task: Task, policy: str, seed: int = 0, *, max_turns: int = MAX_TURNS
) -> Played:
    environment = to_single(family.build_environment(task))
    try:
        opening = await environment.reset(task, seed)
        messages = list(opening.messages)
        observations: list[Message] = []
        records: list[ToolRecord] = []
        states = [state_of(environment)]
        replies: list[Message] = []
        random, speaker, stop = Random(seed), family.policy(policy), StopReason.MAX_TURNS
        for _ in range(max_turns):
            replies.append(speaker.reply(task, messages, random))
            result = await environment.step(replies[-1])
            assert bool(result.observations) != result.done  # either goes on with something to read, or is over
            observations += result.observations
            records += result.tool_records
            messages += [replies[-1], *result.observations]
            states.append(state_of(environment))
            if result.done:
                stop = StopReason.DONE
                break
        reward = await environment.score(replies, stop)
    finally:
        await environment.close()
    return Played(
        opening=opening,
        replies=replies,
        observations=observations,
        records=records,
        states=states,
        reward=reward,
    )


def run(work: Awaitable[T]) -> T:
    async def await_it() -> T:
        return await work

    return asyncio.run(await_it())


def success(family: EnvironmentFamily, tasks: list[Task], policy: str, max_turns: int = MAX_TURNS) -> float:
    """Share of the tasks that a policy succeeds on, judged as an evaluation does."""

    async def play_all() -> list[Played]:
        return [await play(family, task, policy, seed, max_turns=max_turns) for seed, task in enumerate(tasks)]

    def succeeded(reward: Reward) -> bool:
        identity = TrajectoryId(draw=0, member=0)
        return is_success(Trajectory(id=identity, task_id="", turns=(), stop=StopReason.DONE, reward=reward))

    rewards = [played.reward for played in run(play_all())]
    assert all(isinstance(reward, Scored) for reward in rewards)
    return sum(map(succeeded, rewards)) / len(tasks)


def take(family: EnvironmentFamily, split: Split, count: int) -> list[Task]:
    return [family.task(split, index) for index in range(count)]


# ------------------------------------------------------------------------------------------------ tasks


def test_a_task_is_a_pure_function_of_split_and_index(case: Case) -> None:
    family, other = case.build(), case.build()
    assert isinstance(family, EnvironmentFamily)
    for split in ("train", "heldout"):
        forwards = take(family, split, 20)
        assert [other.task(split, index) for index in reversed(range(20))][::-1] == forwards
        for task in forwards:
            assert json.loads(json.dumps(dict(task.payload))) == task.payload
            assert task.prompt
            assert all(message.text for message in task.prompt)
            # The identity is that of the content.
            assert task.id == replace(task, id="").id


def test_splits_share_no_task(case: Case) -> None:
    family = case.build()
    train, heldout = (
        {
            (
                t.prompt[0].text,
                *(str(each) for key in ("apis", "examples") for each in t.payload.get(key, ())),
            )
            for t in take(family, split, 150)
        }
        for split in ("train", "heldout")
    )  # type: ignore[arg-type]
    if case is CASES["example"]:  # three letters of eight: it has 512 secrets and keeps none apart
        return
    assert not train & heldout


def test_texts_are_as_many_as_asked_for_and_repeatable(case: Case) -> None:
    texts = case.build().texts(30)
    assert len(texts) == 30
    assert all(texts)
    assert list(case.build().texts(30)) == list(texts)


# ------------------------------------------------------------------------------------------------ policies


def test_the_oracle_succeeds_and_chance_does_not(case: Case) -> None:
    family = case.build()
    tasks = take(family, "heldout", 40)
    assert success(family, tasks, "oracle", case.max_turns) >= 0.95
    # The example's "random" tries the letters in either order; a guess that the vault is open is right half the time.
    assert success(family, tasks, "random", case.max_turns) <= (0.75 if case is CASES["example"] else 0.2)


@pytest.mark.parametrize(("name", "changes"), WITH_CONTROLS)
def test_under_a_control_the_oracle_fails_the_same_tasks(name: str, changes: dict[str, Any]) -> None:
    case = CASES[name]
    plain, control = case.build(), case.build(**changes)
    tasks = [task for task in take(plain, "heldout", 60) if case.control_tasks(task)]
    assert [task for task in take(control, "heldout", 60) if case.control_tasks(task)] == tasks
    assert success(control, tasks, "oracle", case.max_turns) <= 0.2


def test_the_gold_answer_is_right_where_a_family_names_it(case: Case) -> None:
    family = case.build()
    if not isinstance(family, GoldAnswers):
        return
    for task in take(family, "heldout", 8):
        reply = family.answer_reply(task, family.gold_answer(task))
        assert reply != family.answer_reply(task, "")

        async def answer(task: Task = task, reply: Message = reply) -> Reward:
            environment = to_single(family.build_environment(task))
            await environment.reset(task, 0)
            assert (await environment.step(reply)).done
            return await environment.score([reply], StopReason.DONE)

        reward = run(answer())
        assert isinstance(reward, Scored)
        assert reward.part("success") == 1.0


# ------------------------------------------------------------------------------------------------ episodes


def test_seeds_reproduce_an_episode(case: Case) -> None:
    for task in take(case.build(), "train", 4):
        for policy in ("oracle", "random"):
            one, other = (run(play(case.build(), task, policy, seed=3, max_turns=case.max_turns)) for _ in range(2))
            strip = [[replace(record, seconds=0.0) for record in each.records] for each in (one, other)]
            assert strip[0] == strip[1]
            assert replace(one, records=[]) == replace(other, records=[])


def test_what_the_model_reads_does_not_depend_on_the_gold_answer(case: Case) -> None:
    """Everything a policy is shown stays the same when the gold answer is another, for the same replies."""
    family = case.build()
    for task in take(family, "heldout", 12):
        played = run(play(family, task, "oracle", max_turns=case.max_turns))
        blind = replace(task, payload={**task.payload, **spoil(task.payload, case.gold)})

        async def replay(task: Task = blind, replies: list[Message] = played.replies) -> tuple[Opening, list[Message]]:
            environment = to_single(family.build_environment(task))
            opening = await environment.reset(task, 0)
            seen = [message for reply in replies for message in (await environment.step(reply)).observations]
            await environment.close()
            return opening, seen

        assert run(replay()) == (played.opening, played.observations)


def spoil(payload: Mapping[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    junk: dict[str, Any] = {
        "answers": ["4711"],
        "evidence": [],
        "calls": [["nothing0", {}]],
        "missing": "nothing",
        "answer": "4711",
        "bug": {},
        "other_bugs": [],
        "hidden": [],
        "parts": [],
    }
    return {key: junk[key] for key in keys if key in payload}


def test_an_environment_is_used_once(case: Case) -> None:
    family = case.build()
    task = family.task("train", 0)
    reply = family.policy("oracle").reply(task, task.prompt, Random(0))

    async def misuse() -> None:
        fresh = family.build_environment(task)
        assert isinstance(fresh, Environment)
        assert fresh is not family.build_environment(task)
        with pytest.raises(EnvironmentFault, match="stepped before reset"):
            await fresh.step(reply)
        await fresh.reset(task, 0)
        with pytest.raises(EnvironmentFault, match="reset twice"):
            await fresh.reset(task, 0)
        if not (await fresh.step(reply)).done:
            await fresh.step(text_message("assistant", "<answer> \\boxed{nothing} </answer>"))
        with pytest.raises(EnvironmentFault, match="after its episode ended"):
            await fresh.step(reply)
        assert isinstance(await fresh.score([reply], StopReason.DONE), Scored)
        await fresh.close()
        await fresh.close()
        with pytest.raises(EnvironmentFault):
            await fresh.step(reply)
        unused = family.build_environment(task)
        await unused.close()
        await unused.close()

    run(misuse())


def test_malformed_and_unknown_calls_are_answered(case: Case) -> None:
    family = case.build()
    error = ToolCallError(kind="bad_json", raw="{", message="a tool call is not valid JSON")
    wrong = [
        text_message("assistant", "x", tool_errors=(error,)),
        text_message("assistant", "", tool_calls=(ToolCall(id="c", name="no_such_tool", arguments="{}"),)),
        text_message("assistant", "", tool_calls=(ToolCall(id="c", name="search", arguments="{not json"),)),
    ]
    for task in take(family, "train", 3):
        for message in wrong:

            async def answer(task: Task = task, message: Message = message) -> tuple[bool, Reward]:
                environment = to_single(family.build_environment(task))
                await environment.reset(task, 0)
                result = await environment.step(message)
                reward = await environment.score([message], StopReason.DONE if result.done else StopReason.MAX_TURNS)
                await environment.close()
                return result.done or bool(result.observations), reward

            answered, reward = run(answer())
            assert answered
            assert isinstance(reward, Scored)
            assert reward.part("success") in (None, 0.0)


def test_an_episode_cut_by_a_limit_is_scored(case: Case) -> None:
    family = case.build()

    async def cut(task: Task) -> Reward:
        environment = to_single(family.build_environment(task))
        await environment.reset(task, 0)
        reward = await environment.score([], StopReason.MAX_TOKENS)
        await environment.close()
        return reward

    for task in take(family, "heldout", 6):
        reward = run(cut(task))
        assert isinstance(reward, Scored)
        assert reward.part("success") in (None, 0.0)


# ------------------------------------------------------------------------------------------------ states and forks


def test_equal_states_have_equal_hashes_and_every_call_changes_them(case: Case) -> None:
    family = case.build()
    hashes: dict[str, str] = {}
    for task in take(family, "heldout", 8):
        one, other = (run(play(family, task, "oracle", max_turns=case.max_turns)) for _ in range(2))
        assert one.states == other.states
        if one.states[0] is None:
            continue
        for index, state in enumerate(one.states):
            assert isinstance(state, str)
            moment = f"{task.id} after {[(r.call.name, r.call.arguments) for r in one.records[:index]]}"
            assert hashes.setdefault(state, moment) == moment
        assert len(set(one.states)) == 1 + len(one.records)


def test_a_fork_and_its_origin_know_nothing_of_each_other(case: Case) -> None:
    family = case.build()
    for task in take(family, "train", 6):
        played = run(play(family, task, "oracle", seed=5, max_turns=case.max_turns))
        if len(played.replies) < 2:
            continue

        async def branch(task: Task = task, played: Played = played) -> None:
            environment = to_single(family.build_environment(task))
            await environment.reset(task, 5)
            if not isinstance(environment, ForkableEnvironment):
                return
            before = await environment.fork()
            await environment.step(played.replies[0])
            after = await environment.fork()
            assert state_of(after) == state_of(environment) == played.states[1]
            await environment.step(played.replies[0])
            assert [state_of(before), state_of(after)] == played.states[:2]
            # The origin ends another way and closes; the forks go on as the episode did.
            await environment.step(text_message("assistant", "<answer> nothing </answer> \\boxed{nothing}"))
            await environment.close()
            for twin, done in ((before, 0), (after, 1)):
                seen = [m for reply in played.replies[done:] for m in (await twin.step(reply)).observations]
                assert seen == played.observations[done:]
                assert await twin.score(played.replies, StopReason.DONE) == played.reward
                await twin.close()

        run(branch())
