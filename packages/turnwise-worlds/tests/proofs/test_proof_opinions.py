"""What an audit asks about a rewarded episode."""

import asyncio
import shutil

import pytest

from turnwise.core.errors import ConfigError
from turnwise.core.protocols import Opinion, SecondOpinion
from turnwise_worlds.proofs.family import Proofs
from turnwise_worlds.proofs.opinion import PROGRAM, VERIFIER
from turnwise_worlds.proofs.policies import tactic_message
from turnwise_worlds.proofs.theorem import theorem_of


@pytest.mark.system
@pytest.mark.skipif(shutil.which("metamath") is None, reason="metamath is not installed")
def test_a_proof_is_confirmed_and_a_claim_without_one_is_not() -> None:
    family = Proofs()
    assert isinstance(family, SecondOpinion)
    for index in range(8):
        task = family.task("train", index)
        script = theorem_of(task).script
        replies = [tactic_message(number, tactic) for number, tactic in enumerate(script)]
        assert asyncio.run(family.give_opinion(task, replies)) == Opinion(by=PROGRAM, problem=None)
        claim = asyncio.run(family.give_opinion(task, replies[:-1]))
        assert claim.by == VERIFIER
        assert "open after the last reply" in str(claim.problem)


def test_without_the_program_the_question_stays_open(monkeypatch: pytest.MonkeyPatch) -> None:
    family = Proofs(seed=1)
    task = family.task("train", 0)
    replies = [tactic_message(number, tactic) for number, tactic in enumerate(theorem_of(task).script)]
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ConfigError, match="needs the program metamath"):
        asyncio.run(family.give_opinion(task, replies))
