"""A family of questions about a small folder of files, answered with a shell and a reader of files.

    user        How many md files are there?
    assistant   <tool_call> execute_bash command = "ls *.md | wc -l" </tool_call>
    tool        3
    assistant   <answer> 3 </answer>

A task brings its files (`payload["files"]`), and the truth is computed from them. An agent of one's own plays it in the
sandbox (`environment.name = "agent"`); the family's own environment has the same two tools for the warm-up, and runs
commands in the sandbox too, each in the folder as it was at the start.

The scripted policy "naive" knows every question's first step, and takes a shortcut for the rest, which is rarely right:
it counts all files, names the last file, repeats the name that a file says, and repeats one of the numbers. With
probability `naive_skill` it does what the oracle does, so that reinforcement learning has something to find."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from json import dumps
from random import Random
from typing import Any

from pydantic import Field

from turnwise.core.errors import ToolFailure
from turnwise.core.protocols import Split
from turnwise.core.seeds import rng
from turnwise.core.types import Message, RewardPart, Scored, StopReason, Task, ToolCall, text_message
from turnwise.environments.arguments import FamilyArguments, Seconds, Share, check_weights
from turnwise.environments.generated import GeneratedFamily
from turnwise.environments.replies import answer_message
from turnwise.environments.shared_sandbox import SharedSandbox, load_sandbox
from turnwise.environments.tool_environment import ToolEnvironment
from turnwise.rewards.answers import extract_answer
from turnwise.tools.sandboxed import ask_sandbox
from turnwise_sandbox.types import Limits, Program

SYSTEM = "Answer in one word."
NAMES = ("amber", "birch", "coral", "delta", "ember", "fjord", "grove", "haven", "ivory", "jade", "kite", "lotus")
WORDS = ("apple", "bread", "cream", "dates", "grape", "honey", "lemon", "mango", "olive", "peach", "sugar", "water")
ENDINGS = ("md", "txt", "csv")
NUM_FILES = (4, 7)
"""The least and most files of a folder."""

Files = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of question: {} stands for what it is about."""

    question: str
    command: str
    """What answers it; the path of a file to read if it does not begin with a command's name."""
    shortcut: str
    """What the naive policy does instead; the path of a file that it reads."""


KINDS: Mapping[str, Kind] = {
    "count": Kind(question="How many {} files are there?", command="ls *.{} | wc -l", shortcut="ls | wc -l"),
    "find": Kind(question="Which file has the word {} in it?", command="grep -l {} *", shortcut="ls"),
    "sum": Kind(
        question="What do the numbers in the {} files add up to?",
        command="awk '{{s += $1}} END {{print s}}' *.{}",
        shortcut="cat *.{}",
    ),
    "follow": Kind(question="What does the file say whose name is in {}?", command="", shortcut=""),
}


def build_files(kind: str, random: Random) -> tuple[dict[str, str], str]:
    """Draw the files of a task, and what its question is about."""
    names = random.sample(NAMES, random.randint(*NUM_FILES))
    endings = random.sample(ENDINGS, 2) if kind in ("count", "sum") else ENDINGS
    paths = [f"{name}.{random.choice(endings)}" for name in names]
    chosen = paths[0].partition(".")[2]
    if kind == "count":
        return {path: f"{random.choice(WORDS)}\n" for path in paths}, chosen
    if kind == "sum":
        return {path: f"{random.randint(1, 9)}\n" for path in paths}, chosen
    files = {path: f"{word}\n" for path, word in zip(paths, random.sample(WORDS, len(paths)), strict=True)}
    if kind == "follow":
        files[paths[0]] = f"{paths[1]}\n"
        about = paths[0]
    else:
        about = files[paths[0]].strip()
    return {path: files[path] for path in random.sample(paths, len(paths))}, about


def solve(kind: str, about: str, files: Files) -> str:
    """Return the answer, from the files."""
    of_kind = [text for path, text in files.items() if path.endswith(f".{about}")]
    if kind == "count":
        return str(len(of_kind))
    if kind == "sum":
        return str(sum(map(int, of_kind)))
    if kind == "find":
        return next(path for path, text in files.items() if about in text.split())
    return files[files[about].strip()].strip()


class FolderArguments(FamilyArguments):
    """Which questions are asked, and how commands are limited."""

    kinds: dict[str, float] | None = None
    """Weight of every kind of question: count, find, sum, follow; None for equal ones."""
    naive_skill: Share = 0.15
    """Probability with which the naive policy does what the oracle does."""
    tool_timeout_s: Seconds = 60.0
    """Most seconds that a call may take, including the wait for a free place in the sandbox."""
    wall_s: Seconds = 10.0
    """Most seconds of real time for a command."""
    memory_mib: int = Field(256, ge=16, le=2**40)
    """Most memory of a command, in MiB."""

    @property
    def weights(self) -> dict[str, float]:
        """The positive weights of `kinds`. Raises ConfigError."""
        return check_weights("kinds", self.kinds, tuple(KINDS))


class Folder(ToolEnvironment):
    """One episode; the reward is 1 for the right word and 0 for anything else."""

    def __init__(self, sandbox: SharedSandbox, chosen: FolderArguments) -> None:
        """`sandbox` is shared by all episodes."""
        super().__init__(tool_timeout_s=chosen.tool_timeout_s, max_observation_chars=chosen.max_observation_chars)
        self._sandbox = sandbox
        self._limits = Limits(wall_s=chosen.wall_s, memory_bytes=chosen.memory_mib << 20)

    async def setup(self, task: Task, seed: int) -> tuple[Sequence[Message], Sequence[Callable[..., object]]]:
        """The task's prompt, and the tools of `examples/first_run.py`."""
        self._task = task
        self._files: Files = task.payload["files"]
        return task.prompt, [self.execute_bash, self.read_file]

    async def execute_bash(self, command: str) -> str:
        """Run a command in the folder.

        Args:
            command: The command.
        """
        files = {path: text.encode() for path, text in self._files.items()}
        program = Program(code=command, language="bash", files=files)
        return (await ask_sandbox(self._sandbox.run(program, self._limits))).text()

    def read_file(self, path: str) -> str:
        """Read a file of the folder.

        Args:
            path: The file's name.
        """
        text = self._files.get(posixpath.normpath(path))
        if text is None:
            raise ToolFailure(f"there is no file {path[:80]!r}")
        return text

    async def score(self, replies: Sequence[Message], stop: StopReason) -> Scored:
        """Judge the last reply, by the files."""
        payload = self._task.payload
        said = replies[-1].text if replies and not replies[-1].tool_calls else ""
        answer = extract_answer(said)
        right = float(
            (said if answer is None else answer).strip() == solve(payload["kind"], payload["about"], self._files)
        )
        return Scored(total=right, parts=(RewardPart(name="success", value=right),))


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderPolicy:
    """Answers questions by what it sees, never by the payload."""

    skill: float
    """Probability of doing what answers the question, instead of the shortcut."""
    guess: bool = False
    """Answer with any word, whatever the tools say."""

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        """The next call, or the answer: the last word that was read."""
        kind, about = read_question(next(message.text for message in messages if message.role == "user"))
        seen = [message.text.split()[-1:] or ["nothing"] for message in messages if message.role == "tool"]
        if not seen and kind != "follow":
            asked = KINDS[kind].command if rng.random() < self.skill else KINDS[kind].shortcut
            return call_tool("execute_bash", command=asked.format(about))
        if not seen:
            return call_tool("read_file", path=about)
        if kind == "follow" and len(seen) == 1 and rng.random() < self.skill:
            return call_tool("read_file", path=seen[0][0])
        return answer_message(rng.choice((*NAMES, *WORDS)) if self.guess else seen[-1][0])


def read_question(text: str) -> tuple[str, str]:
    """Return the kind of a question and what it is about."""
    for name, kind in KINDS.items():
        head, _, tail = kind.question.partition("{}")
        if text.startswith(head) and text.endswith(tail):
            return name, text[len(head) : len(text) - len(tail)]
    raise ValueError(f"{text[:80]!r} is no question about a folder")


def call_tool(name: str, **arguments: str) -> Message:
    """Return a reply with one call."""
    call = ToolCall(id="call_0", name=name, arguments=dumps(arguments))
    return Message(role="assistant", content=(), tool_calls=(call,))


class FolderFamily(GeneratedFamily[FolderArguments]):
    """Questions about folders. A task is a pure function of the arguments, a split and an index."""

    name = "folders"
    section = FolderArguments

    def __init__(self, **arguments: Any) -> None:
        """See `GeneratedFamily`."""
        super().__init__(**arguments)
        self._weights = self._chosen.weights
        self._sandbox = SharedSandbox(load_sandbox("local", {}))

    def generate(self, split: Split, index: int) -> tuple[tuple[Message, ...], dict[str, Any]]:
        """Draw a kind, the files and the question; splits are endless."""
        random = rng("folders", self._chosen.seed, split, index)
        (kind,) = random.choices(list(self._weights), list(self._weights.values()))
        files, about = build_files(kind, random)
        prompt = (text_message("system", SYSTEM), text_message("user", KINDS[kind].question.format(about)))
        return prompt, {"files": files, "kind": kind, "about": about}

    def build_environment(self, task: Task) -> Folder:
        """Build a fresh episode; all episodes share one sandbox."""
        return Folder(self._sandbox, self._chosen)

    def policies(self) -> Mapping[str, FolderPolicy]:
        """The policies "oracle", "naive" (see the module) and "random"."""
        return {
            "oracle": FolderPolicy(skill=1.0),
            "naive": FolderPolicy(skill=self._chosen.naive_skill),
            "random": FolderPolicy(skill=0.5, guess=True),
        }

    def sample_texts(self, index: int) -> Iterator[str]:
        """Yield the question, the files, and every call and answer of the oracle and the naive policy. Runs nothing."""
        task = self.task("train", index)
        kind, about, files = (task.payload[key] for key in ("kind", "about", "files"))
        yield "\n\n".join(message.text for message in task.prompt)
        yield from (f" {path} {text}" for path, text in files.items())
        for asked in filter(None, (KINDS[kind].command, KINDS[kind].shortcut)):
            yield f' execute_bash command = "{asked.format(about)}"'
        yield f" read_file path = {about}"
        yield f" {solve(kind, about, files)}"
