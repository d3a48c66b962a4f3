"""Which holes are known: each is there, each is on the page, and the cheap families have no others."""

from pathlib import Path

import pytest

from turnwise_rewards import RECIPES
from turnwise_rewards.redteam.attacks.table import choose_attacks
from turnwise_rewards.redteam.check import check_reward
from turnwise_rewards.redteam.known import KNOWN, KnownHole, list_holes
from turnwise_rewards.runs.targets import find_target

ROOT = Path(__file__).parents[4]


def find_recipe(name: str) -> str:
    """The file of a recipe of this package."""
    return str(RECIPES / f"{name}.toml")


PAGE = Path(__file__).parents[2] / "docs" / "redteam.md"
SHOWN_BY = {
    "own_judge:Painter": [str(ROOT / "examples" / "own_judge.toml")],
    "turnwise_rewards.redteam.clerk:Clerk": [find_recipe("redteam/clerk")],
    "turnwise_rewards.shaping.sources:Sources": ["turnwise_rewards.shaping.sources:Sources"],
    "majority": [find_recipe("unlabelled/right")],
    "curiosity": [find_recipe("shaping/drawers"), find_recipe("shaping/parts/curiosity")],
    "usefulness": [find_recipe("shaping/drawers"), find_recipe("shaping/parts/usefulness")],
}
"""What shows a known hole, by its environment or reward; the environment itself for others."""
QUICK = {"repair": {"prompt": "short", "sandbox": "family_cases:PretendTests"}}
"""Arguments that spare a test the sandbox; the attack writes lines of the family's own small language."""


@pytest.mark.parametrize(
    "known", KNOWN, ids=lambda known: f"{known.environment or known.rewards[0]} {known.attacks[0]}"
)
def test_a_known_hole_is_there_and_on_the_page(known: KnownHole, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    monkeypatch.syspath_prepend(str(ROOT / "tests"))
    shown = known.environment or known.rewards[0]
    if shown == "reasoning_gym":
        pytest.importorskip("reasoning_gym")
    first, *over = SHOWN_BY.get(shown, [shown])
    target = find_target(first, {**known.arguments, **QUICK.get(shown, {})}, over=over)
    holes = list_holes(target.environments, target.arguments, target.rewards)
    attacks = ("yes",) if known.attacks == ("any",) else known.attacks
    num_tasks = 20 if target.arena.group_size == 1 else 3
    lines = check_reward(target.arena, num_tasks=num_tasks, attacks=choose_attacks(attacks), listed=holes)
    assert {line.attack for line in lines if line.state == "listed"} == set(attacks), lines
    page = " ".join(PAGE.read_text(encoding="utf-8").split())
    assert known.reason in page
    assert all(attack in page for attack in known.attacks)


@pytest.mark.parametrize("family", ["countdown", "revise", "retry"])
def test_a_cheap_family_has_no_other_hole(family: str) -> None:
    target = find_target(family, {})
    lines = check_reward(
        target.arena, num_tasks=4, listed=list_holes(target.environments, target.arguments, target.rewards)
    )
    assert not [line for line in lines if line.state == "hole"]
    assert sum(line.state == "holds" for line in lines) > 30


@pytest.mark.parametrize("judge", ["honestly", "gated"])
def test_an_honest_judge_and_a_gate_close_the_planted_hole(judge: str, tmp_path: Path) -> None:
    text = (RECIPES / "redteam" / "clerk.toml").read_text(encoding="utf-8")
    path = tmp_path / "clerk.toml"
    path.write_text(text.replace("judge_gullibly", f"judge_{judge}"), encoding="utf-8")
    known = next(each for each in KNOWN if "clerk" in each.environment)
    lines = check_reward(
        find_target(str(path), {}).arena, num_tasks=8, attacks=choose_attacks(known.attacks), listed={}
    )
    assert {line.state for line in lines} == {"holds"}
