"""Word problems in natural language: several steps, irrelevant numbers, and an expression or a program.

Pure. Programs are text here and are never run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from random import Random
from typing import Literal

from turnwise.core.errors import ConfigError
from turnwise.core.protocols import Split
from turnwise.environments.math_code.problems import MAX_DRAWS, split_of

NAMES = ("Ada", "Ben", "Carla", "Dmitri", "Elif", "Farid", "Grace", "Hugo", "Ines", "Jonas", "Kemi", "Lena", "Marco")
DISTRACTORS = (
    "The place has been open for {0} years.",
    "It is {0} degrees outside.",
    "The way there takes {0} minutes by bus.",
    "A neighbour has {0} chickens.",
    "The radio on the shelf cost {0} dollars.",
    "There are {0} stairs up to the door.",
)
MAX_DISTRACTORS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """The setting of a story. Templates contain the name, the thing, and the numbers as {0} and {1}."""

    thing: str
    opening: tuple[str, ...]
    """Templates with two numbers whose product is the amount at the start."""
    gain: tuple[str, ...]
    """Templates with one number to add."""
    gain_groups: tuple[str, ...]
    """Templates with two numbers whose product to add."""
    loss: tuple[str, ...]
    """Templates with one number to take away."""


SCENES: tuple[Scene, ...] = (
    Scene(
        thing="rolls",
        opening=("{name} bakes {0} trays of {1} rolls.", "On {0} trays of the bakery lie {1} rolls each."),
        gain=("A helper brings {0} more rolls.", "Then {0} rolls come from another shop."),
        gain_groups=("Later {name} fills {0} baskets with {1} fresh rolls each.",),
        loss=("A school buys {0} of them.", "{name} burns {0} rolls and throws them away."),
    ),
    Scene(
        thing="books",
        opening=("A library has {0} shelves with {1} books each.", "{name} counts {0} shelves of {1} books."),
        gain=("A reader gives {0} books to it.", "In the cellar {name} finds {0} more books."),
        gain_groups=("A truck delivers {0} boxes with {1} books in every box.",),
        loss=("{0} books are sold at the fair.", "Because of a leak {0} books are lost."),
    ),
    Scene(
        thing="apples",
        opening=("{name} picks {0} crates of {1} apples.", "In the barn stand {0} crates with {1} apples in each."),
        gain=("Under a tree {name} picks up {0} more.", "The children bring {0} apples."),
        gain_groups=("From {0} young trees come {1} apples each.",),
        loss=("The horses eat {0} of the apples.", "{0} apples have gone bad and are taken out."),
    ),
    Scene(
        thing="screws",
        opening=(
            "A workshop buys {0} packs of {1} screws.",
            "{name} orders {0} packs of {1} screws.",
        ),
        gain=("{0} screws lay in a drawer already.", "A friend leaves {0} screws there."),
        gain_groups=("A week later {0} jars with {1} screws each arrive.",),
        loss=("For a roof {name} uses {0} screws.", "{0} screws are bent and are thrown away."),
    ),
    Scene(
        thing="stickers",
        opening=("{name} has an album of {0} pages with {1} stickers on each page.",),
        gain=("For a birthday {name} gets {0} new stickers.", "{name} finds {0} stickers in a magazine."),
        gain_groups=("Then {name} buys {0} bags of {1} stickers.",),
        loss=("{name} swaps {0} stickers for a poster.", "{0} stickers fall off and are lost."),
    ),
)
QUESTIONS = ("How many {thing} are there in the end?", "How many {thing} does that leave?")
PACKS = (
    "All {thing} are packed in bags of {0}. How many {thing} do not fill a bag?",
    "Then they are put into boxes that hold {0} each. How many {thing} are left over?",
)
GROWTH = (
    "{name} keeps {0} fish in a pond. Every spring {1} fish are added, and afterwards one in {2} of all the fish is "
    "sold, rounded down. How many fish are there after {3} springs?",
    "{name} founds a club with {0} members. Each year {1} people join, and after that one in {2} members leaves, "
    "rounded down. How many members does it have after {3} years?",
)
GROWTH_PROGRAM = "n = {0}\nfor _ in range({3}):\n    n += {1}\n    n -= n // {2}\nprint(n)"

Tool = Literal["calculator", "python"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """A word problem: its text, its answer, and expressions or programs that find the answer or a wrong number."""

    question: str
    answer: int
    tool: Tool
    """The tool for which `solution` and `slip` are written: the calculator (an expression) or Python (a program)."""
    solution: str
    """An expression or program that finds the answer."""
    slip: str
    """The same with a hasty reader's mistake: it yields another number and never raises."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The effect of one sentence on the amount: a signed number or product."""

    sentence: str
    sign: Literal[1, -1]
    factors: tuple[int, ...]

    @property
    def value(self) -> int:
        """The number added to the amount; negative for a loss."""
        return self.sign * prod(self.factors)

    @property
    def term(self) -> str:
        """The change as written in an expression: "+ 3 * 25"."""
        return f"{'+' if self.sign > 0 else '-'} {' * '.join(map(str, self.factors))}"


def _fill(random: Random, templates: tuple[str, ...], *numbers: int, **words: str) -> str:
    return random.choice(templates).format(*numbers, **words)


def _draw_change(random: Random, scene: Scene, name: str, amount: int) -> Change:
    """Draw one change that leaves at least half of the amount."""
    how = random.choice(("gain", "gain_groups", "loss"))
    if how == "loss":
        lost = random.randrange(2, max(3, amount // 2))
        return Change(sentence=_fill(random, scene.loss, lost, name=name), sign=-1, factors=(lost,))
    if how == "gain":
        gained = random.randrange(3, 400)
        return Change(sentence=_fill(random, scene.gain, gained, name=name), sign=1, factors=(gained,))
    factors = (random.randrange(2, 30), random.randrange(3, 60))
    return Change(sentence=_fill(random, scene.gain_groups, *factors, name=name), sign=1, factors=factors)


def _tell(random: Random, sentences: list[str], question: str) -> str:
    """Join the sentences in order, with up to `MAX_DISTRACTORS` in between, and the question."""
    told = list(sentences)
    for sentence in random.sample(DISTRACTORS, random.randrange(MAX_DISTRACTORS + 1)):
        told.insert(random.randrange(1, len(told) + 1), sentence.format(random.randrange(3, 60)))
    return " ".join([*told, question])


def _draw_steps(random: Random, num_changes: int, *, packs: bool = False) -> Story:
    """Draw a product, then `num_changes` changes; with `packs` the question asks for the remainder of packing. The slip
    omits the last change."""
    scene, name = random.choice(SCENES), random.choice(NAMES)
    first, second = random.randrange(3, 40), random.randrange(4, 60)
    sentences = [_fill(random, scene.opening, first, second, name=name)]
    amounts, expressions = [first * second], [f"{first} * {second}"]
    for _ in range(num_changes):
        change = _draw_change(random, scene, name, amounts[-1])
        sentences.append(change.sentence)
        amounts.append(amounts[-1] + change.value)
        expressions.append(f"{expressions[-1]} {change.term}")
    if not packs:
        question = _fill(random, QUESTIONS, thing=scene.thing)
        solution, slip, answer = expressions[-1], expressions[-2], amounts[-1]
    else:
        size = random.randrange(7, 60)
        question = _fill(random, PACKS, size, thing=scene.thing)
        solution, slip = (f"({expression}) % {size}" for expression in (expressions[-1], expressions[-2]))
        answer = amounts[-1] % size
    return Story(
        question=_tell(random, sentences, question), answer=answer, tool="calculator", solution=solution, slip=slip
    )


def _draw_growth(random: Random) -> Story:
    """Draw a number that grows and shrinks by a rule. The slip runs one round too few."""
    start, added = random.randrange(20, 200), random.randrange(5, 60)
    share, rounds = random.randrange(3, 12), random.randrange(3, 8)
    amount = start
    for _ in range(rounds):
        amount += added
        amount -= amount // share
    text = _fill(random, GROWTH, start, added, share, rounds, name=random.choice(NAMES))
    rule, question = text.rsplit(". ", 1)
    return Story(
        question=_tell(random, [f"{rule}."], question),
        answer=amount,
        tool="python",
        solution=GROWTH_PROGRAM.format(start, added, share, rounds),
        slip=GROWTH_PROGRAM.format(start, added, share, rounds - 1),
    )


STORY_KINDS: Mapping[str, Callable[[Random], Story]] = {
    "steps2": lambda random: _draw_steps(random, 1),
    "steps3": lambda random: _draw_steps(random, 2),
    "steps4": lambda random: _draw_steps(random, 3),
    "packs": lambda random: _draw_steps(random, 2, packs=True),
    "growth": _draw_growth,
}
"""Every kind by name: a product with one to three changes, the remainder of packing, a rule applied in a loop."""


def draw_story(kind: str, split: Split, random: Random) -> Story:
    """Draw a story of a kind and split from `random`; the splits share no text.

    Raises ConfigError if `MAX_DRAWS` draws yield none.
    """
    for _ in range(MAX_DRAWS):
        story = STORY_KINDS[kind](random)
        if split_of(story.question) == split:
            return story
    raise ConfigError(f"no {split} story of kind {kind!r} in {MAX_DRAWS} draws; drop it from environment.args.kinds")
