"""The audit asks a family's second opinion about rewards above 0, and about nothing else."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from made_run import AdderFamily, double, make_config, make_materials, make_run

from turnwise.audit.audit import AuditReport, run_audit
from turnwise.core.errors import DataError
from turnwise.core.protocols import Opinion, SecondOpinion
from turnwise.core.types import Message, Task
from turnwise.environments.mixture import Member, mix_families


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("opinions") / "run")


class Asked(AdderFamily):
    """Counts the questions; answers by the number of replies."""

    def __init__(self, problem: str | None = None, *, is_silent: bool = False, is_broken: bool = False) -> None:
        super().__init__(double, from_records=True)
        self.asked: list[tuple[str, int]] = []
        self._problem, self._is_silent, self._is_broken = problem, is_silent, is_broken

    async def give_opinion(self, task: Task, replies: Sequence[Message]) -> Opinion | None:
        self.asked.append((task.id, len(replies)))
        if self._is_broken:
            raise DataError("the second program is missing; install it")
        return None if self._is_silent else Opinion(by="a second program", problem=self._problem)


def audit(run: Path, family: AdderFamily) -> AuditReport:
    return run_audit(run, replace(make_materials(make_config()), family=family))


def test_a_family_without_second_opinions_is_not_asked(sound: Path) -> None:
    tally = audit(sound, AdderFamily(double, from_records=True)).tallies["opinions"]
    assert (tally.checked, tally.breaches, dict(tally.not_checked)) == (0, [], {})


def test_every_reward_above_zero_is_confirmed(sound: Path) -> None:
    family = Asked()
    report = audit(sound, family)
    assert report.breaches == []
    assert report.tallies["opinions"].checked == len(family.asked) > 5
    assert all(count for _, count in family.asked)


def test_an_objection_is_a_breach_that_names_who_objects(sound: Path) -> None:
    report = audit(sound, Asked("2 + 2 is 5"))
    breaches = [str(breach) for breach in report.breaches]
    assert len(breaches) == report.tallies["opinions"].checked
    assert (
        "[opinions] step 1, trajectory 0/0: a second program says that the reward was not earned: 2 + 2 is 5"
        in breaches
    )


def test_a_question_without_an_answer_is_counted_with_its_reason(sound: Path) -> None:
    family = Asked(is_broken=True)
    tally = audit(sound, family).tallies["opinions"]
    assert dict(tally.not_checked) == {"the second program is missing; install it": len(family.asked)}
    silent = audit(sound, Asked(is_silent=True)).tallies["opinions"]
    assert (silent.checked, silent.breaches) == (0, [])


def test_a_mixture_asks_the_family_of_the_task(sound: Path) -> None:
    with_opinion, without = Asked("no"), AdderFamily(double)
    mixture = mix_families({"one": Member(family=with_opinion, weight=1), "other": Member(family=without, weight=1)})
    assert isinstance(mixture, SecondOpinion)
    one, other = (replace(with_opinion.task("train", 0), environment=label, id="") for label in ("one", "other"))
    opinion = asyncio.run(mixture.give_opinion(one, ()))
    assert opinion == Opinion(by="a second program", problem="no")
    assert asyncio.run(mixture.give_opinion(other, ())) is None
