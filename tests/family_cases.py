"""The families of the environments' contract: every name of the table and of Turnwise's own packages, the example's, a
plain class and a mixture, each small, with what its tests need to know of it."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from random import Random
from typing import Any, Literal

from turnwise.core.protocols import EnvironmentFamily
from turnwise.core.types import Task
from turnwise.environments.classes.family import ClassFamily
from turnwise.environments.mixture import Member, mix_families
from turnwise.environments.registry import list_environments, load_family
from turnwise_sandbox.types import Execution, Limits, Program

UNIT = Path(__file__).parent / "unit"


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
    path = Path(__file__).parents[1] / "examples" / "own_environment.py"
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


@dataclass(frozen=True, kw_only=True)
class Case:
    """A family, and what its tests need to know of it."""

    family: str = ""
    """Its name among the environments; empty for the case's own."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    build: Callable[..., EnvironmentFamily] | None = None
    """Builds one that has no name, or needs files; None loads it by name."""
    controls: tuple[dict[str, Any], ...] = ()
    """Arguments under which the oracle must fail."""
    gold: tuple[str, ...] = ()
    """Keys of the payload that only scoring may read, and what the gold answer is made of."""
    identity: Callable[[Task], Any] = lambda task: (
        task.prompt[0].text,
        *(str(task.payload.get(key)) for key in ("apis", "examples")),
    )
    """What no two splits share."""
    shares: str = ""
    """Why the splits share tasks; empty where they share none."""
    control_tasks: Callable[[Task], bool] = lambda task: True
    """Tasks that a control must spoil."""
    max_turns: int = 16
    """Replies of a conversation after which an episode is stopped."""
    chance: float = 0.2
    """Success of random replies, at most."""
    spoilt: float = 0.2
    """Success of the oracle under a control, at most."""
    acts: Literal["calls", "replies"] = "calls"
    """What changes the state of an environment that has one, each time."""
    meets: str = ""
    """Why different ways lead to one state; empty where they do not."""
    returns: str = ""
    """The call after which an episode is in a state that it was in before; empty where there is none."""


SEARCH: dict[str, Any] = {"kinds": {"1hop": 1.0, "2hop": 1.0}}
SMALL = {"num_entities": 24, "tasks_per_world": 40, "num_words": 32, "num_distractors": 0, "top_k": 2}
PLACE = __name__
GIVEN: dict[str, dict[str, Any]] = {
    "coding": {"sandbox": f"{PLACE}:PretendPrograms", "prompt": "short", "kinds": {"arithmetic": 1.0}},
    "math_code": {"sandbox": f"{PLACE}:PretendSandbox"},
    "repair": {"sandbox": f"{PLACE}:PretendTests", "prompt": "short"},
    "search_qa": SEARCH,
    "tool_calls": {"prompt": "short"},
}
"""Arguments by name."""


def load(name: str, **changes: Any) -> EnvironmentFamily:
    """The family of a name."""
    return load_family(name, {**GIVEN.get(name, {}), **changes})


def build_mixture(**changes: Any) -> EnvironmentFamily:
    return mix_families(
        {
            "maths": Member(family=load("math_code"), weight=1),
            "search": Member(family=load("search_qa", **changes), weight=2),
            **({"tools": Member(family=load("tool_calls"), weight=1)} if find_spec("turnwise_worlds") else {}),
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
    server = UNIT / "tools" / "mcp" / "hostile_server.py"
    return load(
        "mcp",
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
    return load_family("tool_calls", {"mode": "files", **paths, **changes})


def build_labels(**changes: Any) -> EnvironmentFamily:
    """Answers that are compared with a reference."""
    for split in ("train", "heldout"):
        rows = [
            {"text": f"{split} {number}", "reference": str(number % 2), "label": ["incorrect", "correct"][number % 2]}
            for number in range(200)
        ]
        (Path(ROWS.name) / f"labels_{split}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    paths = {f"{split}_path": str(Path(ROWS.name) / f"labels_{split}.jsonl") for split in ("train", "heldout")}
    return load_family("labels", {**paths, **changes})


def show_seed(task: Task) -> Any:
    """What makes a task of a generated world."""
    return task.payload["seed"]


CASES = {
    "browsecomp": Case(
        arguments={"num_entities": 40, "tasks_per_world": 4},
        controls=({"search": "off"}, {"search": "shuffled"}, {"max_searches": 0}),
        gold=("answers",),
    ),
    "coding": Case(controls=({"tests": "off"}, {"tests": "shuffled"}), gold=("hidden", "parts")),
    "countdown": Case(acts="replies", meets="several operations leave the same numbers"),
    "debate": Case(identity=show_seed, chance=0.7, controls=({"protocol": "none"},), spoilt=0.5),
    "delegate": Case(
        arguments={**SEARCH, **SMALL, "prompt": "short"},
        controls=({"answers": "swapped"},),
        control_tasks=lambda task: task.payload["kind"] == "2hop",
        gold=("answers", "evidence"),
    ),
    "devices": Case(
        identity=show_seed,
        controls=({"screen": "blank"},),
        acts="replies",
        max_turns=30,
    ),
    "expander": Case(arguments={"num_entities": 40}, max_turns=80),
    "games": Case(
        arguments={"game": "nim"},
        shares="a deal is no secret: what is learned is the play",
        chance=0.5,
        acts="replies",
        meets="several moves lead to one position",
    ),
    "games, negotiation": Case(
        family="games",
        arguments={"game": "negotiation"},
        identity=lambda task: task.payload["deal"],
        chance=0.4,
        acts="replies",
        meets="a deal is several tasks",
    ),
    "house": Case(
        identity=show_seed,
        controls=({"observations": "blank"}, {"names": "shuffled"}),
        max_turns=30,
        acts="replies",
    ),
    "house, terse": Case(
        family="house",
        arguments={"style": "terse", "places": 5, "things": 3, "max_steps": 14},
        identity=show_seed,
        controls=({"observations": "blank"}, {"names": "shuffled"}),
        acts="replies",
    ),
    "labels": Case(build=build_labels, gold=("label",), chance=0.6, acts="replies"),
    "math_code": Case(controls=({"code": False},), gold=("answers",)),
    "memory": Case(identity=show_seed, controls=({"memory": "erased"}, {"memory": "swapped"}), acts="replies"),
    "memory, fold": Case(
        family="memory", arguments={"style": "fold"}, identity=show_seed, controls=({"memory": "erased"},)
    ),
    "memory, operations": Case(
        family="memory",
        arguments={"style": "operations"},
        identity=show_seed,
        controls=({"memory": "erased"},),
        acts="replies",
    ),
    "memory, rolling": Case(
        family="memory",
        arguments={"style": "rolling"},
        gold=("answers", "evidence"),
        controls=({"memory": "erased"},),
        spoilt=0.5,
    ),
    "pages": Case(
        identity=show_seed,
        controls=({"overview": "grey"}, {"crops": "grey"}, {"crops": "shuffled"}),
        control_tasks=lambda task: task.payload["kind"] != "plain",
        spoilt=0.3,
    ),
    "plan": Case(controls=({"plan": "none"},), identity=show_seed),
    "program_proposer": Case(identity=lambda task: task.payload.get("program", task.payload["index"])),
    "proofs": Case(
        gold=("script",), controls=({"shown": "hidden"}, {"shown": "shuffled"}), meets="tactics that do not apply"
    ),
    "push": Case(
        identity=lambda task: str(task.payload),
        controls=({"goal": "hidden"},),
        acts="replies",
    ),
    "push, pictures": Case(
        family="push",
        arguments={"surface": "picture"},
        identity=lambda task: str(task.payload),
        controls=({"goal": "hidden"}, {"picture": "blank"}),
        acts="replies",
    ),
    "report": Case(controls=({"search": "off"}, {"search": "shuffled"})),
    "research": Case(
        controls=({"search": "off"}, {"search": "shuffled"}, {"citations": "shuffled"}),
        max_turns=80,
    ),
    "reasoning_gym": Case(arguments={"datasets": {"course_schedule": 1.0}}, chance=0.5),
    "relay": Case(controls=({"channel": "silent"},), identity=show_seed),
    "repair": Case(controls=({"tests": "off"}, {"tests": "shuffled"}), gold=("bug",)),
    "repair, linked": Case(
        family="repair",
        arguments={"bugs": 2, "calls": True},
        controls=({"tests": "off"}, {"tests": "shuffled"}),
        gold=("bug", "other_bugs"),
        max_turns=24,
    ),
    "retry": Case(identity=show_seed, controls=({"reflection": "none"},), acts="replies"),
    "revise": Case(chance=0.3, acts="replies"),
    "screens": Case(identity=show_seed, controls=({"shown": "empty"}, {"shown": "other"})),
    "screens, text": Case(
        family="screens",
        arguments={"surface": "text"},
        identity=show_seed,
        controls=({"shown": "empty"}, {"shown": "other"}),
    ),
    "search_proposer": Case(arguments={key: SMALL[key] for key in ("num_entities", "num_words")}),
    "search_qa": Case(controls=({"search": "off"}, {"search": "shuffled"}), gold=("answers", "evidence")),
    "tool_calls": Case(
        controls=({"schema": "shuffled"}, {"schema": "blanked"}),
        gold=("calls", "missing"),
        control_tasks=lambda task: bool(task.payload["calls"]),
    ),
    "tool_calls, files": Case(family="tool_calls", build=build_call_rows, gold=("calls",)),
    "web": Case(
        identity=show_seed,
        controls=({"page": "blank"},),
        max_turns=40,
        meets="going back leads to the page before",
        returns="back",
    ),
    "web, terse": Case(
        family="web",
        arguments={"site": "terse", "actions": "webshop", "format": "short", "kinds": {"shop": 1.0}},
        identity=show_seed,
        controls=({"page": "blank"}, {"page": "shuffled"}),
        meets="going back leads to the page before",
        returns="back",
    ),
    # The vault's secret is the prompt's letters backwards, and the tool has to know it. Its "random" tries the letters
    # in either order; a guess that the vault is open is right half the time.
    "example": Case(build=load_example(), shares="three letters of eight are 512 secrets", chance=0.75),
    "plain class": Case(build=lambda **changes: ClassFamily(Halving, **changes)),
    "mixture": Case(
        build=build_mixture,
        controls=({"search": "off"},),
        gold=("answers", "evidence", "calls", "missing"),
        control_tasks=lambda task: task.environment == "search",
    ),
}
if find_spec("mcp"):  # an optional extra
    CASES["mcp"] = Case(build=build_mcp, gold=("answer", "calls"))

ADAPTER = "the package is no part of `dev`, and `make test-adapters` installs it"
EXCUSED = {
    "agent": ("a program outside asks, and none is scripted", "tests/unit/environments/agents/test_agents.py"),
    "coq": (
        "an episode is played in Coq, which is no part of `dev`",
        "packages/turnwise-worlds/tests/coq/test_coq_family.py",
    ),
    "alfworld": (ADAPTER, "packages/turnwise-adapters/tests/adapters/test_alfworld.py"),
    "crafter": (ADAPTER, "packages/turnwise-adapters/tests/adapters/test_crafter.py"),
    "gymnasium": (ADAPTER, "packages/turnwise-adapters/tests/adapters/test_gymnasium.py"),
    "lean": ("an episode is played in Lean, which is not there", "packages/turnwise-worlds/tests/lean/test_lean.py"),
    "near_failures": (
        "its tasks are those of another family, from a file",
        "packages/turnwise-synthesis/tests/failures/test_near_failures.py",
    ),
    "minigrid": (ADAPTER, "packages/turnwise-adapters/tests/adapters/test_gymnasium.py"),
    "open_spiel": (ADAPTER, "packages/turnwise-adapters/tests/adapters/test_board_games.py"),
    "openenv": (ADAPTER, "packages/turnwise-adapters/tests/adapters/test_openenv.py"),
    "pettingzoo": (ADAPTER, "packages/turnwise-adapters/tests/adapters/test_board_games.py"),
    "miniwob": (
        "its pages need a browser, which `make test-worlds` installs",
        "packages/turnwise-worlds/tests/miniwob/test_miniwob_pages.py",
    ),
    "swe": (
        "an episode runs a repository's tests in a sandbox",
        "packages/turnwise-swe/tests/environment/test_swe_episodes.py",
    ),
    "scienceworld": (ADAPTER, "packages/turnwise-adapters/tests/adapters/test_scienceworld.py"),
    "textworld": (ADAPTER, "packages/turnwise-adapters/tests/adapters/test_textworld.py"),
    "planted": (
        "its splits ask the same questions on purpose: what is held out is the answer",
        "packages/turnwise-rewards/tests/unlabelled/test_planted.py",
    ),
    "verifiers": (ADAPTER, "packages/turnwise-adapters/tests/adapters/test_verifiers.py"),
    "verl_tool": (
        "tasks and episodes are those of `mcp`, over servers of another protocol",
        "packages/turnwise-adapters/tests/verl_tool/test_verl_tool_serving.py",
    ),
}
"""Environments outside the contract: why, and the tests that play them."""
if "mcp" not in CASES:
    EXCUSED["mcp"] = ("its package is not installed", "tests/unit/environments/mcp/test_mcp_environment.py")
OWN = sorted({each.name for each in list_environments() if each.source.startswith(("built in", "turnwise"))})
"""Environments of the table, and those that Turnwise's own packages offer where they are installed."""
CASES = {
    name: case for name, case in CASES.items() if (case.family or name) in {*OWN, "example", "plain class", "mixture"}
}
EXCUSED = {name: reason for name, reason in EXCUSED.items() if name in OWN}


def build_family(name: str, **changes: Any) -> EnvironmentFamily:
    """A fresh family of a case."""
    case = CASES[name]
    if case.build is not None:
        return case.build(**{**case.arguments, **changes})
    return load(case.family or name, **{**case.arguments, **changes})


@cache
def shared_family(name: str) -> EnvironmentFamily:
    """The family of a case that tests share."""
    return build_family(name)
