"""What the run adds to a judge: the cache, the account, agreement with labels, and judges made of others."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from turnwise.config.judges import JudgeSection
from turnwise.config.load import load_config
from turnwise.core.errors import ConfigError, DataError, RewardError
from turnwise.core.judging import EpisodeJudges, NoVerdict
from turnwise.core.messages import text_message
from turnwise.core.verdicts import RATING, Question, Usage, Verdict
from turnwise.judging.limits import LimitedJudge, Prices
from turnwise.judging.panel import Debate, Ensemble
from turnwise.questions.asking import compare, rank
from turnwise.questions.forms import match, pair
from turnwise.questions.replies import read_reply
from turnwise.runs.judges import build_judges, check_judges, refuse_model, refuse_policy, remember_costs


def ask_about(text: str, **fields: Any) -> Question:
    return Question(messages=(text_message("user", text),), **fields)


class Says:
    """A judge whose reply is a function of the question."""

    def __init__(self, say: Callable[[Question], str | float | Exception], **usage: int) -> None:
        self.say, self.usage = say, Usage(**usage)
        self.asked: list[Question] = []
        self.version = 0

    async def judge(self, question: Question) -> Verdict:
        self.asked.append(question)
        await asyncio.sleep(0)
        said = self.say(question)
        if isinstance(said, Exception):
            raise said
        if isinstance(said, float):
            return Verdict(score=said, usage=self.usage)
        try:
            score, marks = read_reply(said, question.form)
        except RewardError as problem:
            raise NoVerdict(str(problem), self.usage) from None
        return Verdict(score=score, marks=marks, text=said, usage=self.usage)

    async def close(self) -> None: ...


def limit(judge: Any, name: str = "grader", **changes: Any) -> LimitedJudge:
    limits = {"max_concurrent": 8, "timeout_s": 20.0, "max_retries": 0, "seed": 1, **changes}
    return LimitedJudge(judge, name=name, **limits)


def test_an_equal_question_is_asked_once_and_costs_once() -> None:
    says = Says(lambda question: 0.5, prompt_tokens=100, reply_tokens=10)
    judge = limit(says, cache=10, prices=Prices(prompt_price=1.0, reply_price=10.0))

    async def ask() -> list[Verdict]:
        both = await asyncio.gather(judge.judge(ask_about("a")), judge.judge(ask_about("a")))
        return [*both, await judge.judge(ask_about("a")), await judge.judge(ask_about("a", seed=1))]

    verdicts = asyncio.run(ask())
    assert len(says.asked) == 2
    assert [verdict.usage.attempts for verdict in verdicts] == [1, 0, 0, 1]
    # 100 tokens at 1 and 10 at 10 for a million: 0.0002, twice
    assert [verdict.usage.cost for verdict in verdicts] == [pytest.approx(2e-4), 0.0, 0.0, pytest.approx(2e-4)]
    assert judge.spent == pytest.approx(4e-4)


def test_the_cache_keeps_the_latest_used_and_no_failure_and_knows_versions() -> None:
    answers: list[float | Exception] = [RewardError("busy"), 0.1, 0.2, 0.3, 0.4, 0.5]
    says = Says(lambda question: answers.pop(0))
    judge = limit(says, cache=2)

    async def ask(text: str) -> float:
        return (await judge.judge(ask_about(text))).score

    async def ask_all() -> list[float]:
        with pytest.raises(RewardError, match="busy"):
            await ask("a")
        scores = [await ask(text) for text in ("a", "b", "a", "c", "a", "b")]
        says.version = 1
        return [*scores, await ask("b")]

    # "b" was used before "a" when "c" came, so it is asked again; and a judge that changed is asked again
    assert asyncio.run(ask_all()) == [0.1, 0.2, 0.1, 0.3, 0.1, 0.4, 0.5]


def test_a_question_that_differs_in_anything_is_another_question() -> None:
    says = Says(lambda question: 0.5)
    judge = limit(says, cache=99)
    asked = [
        ask_about("a"),
        ask_about("a "),
        ask_about("a", rubric="short"),
        ask_about("a", form=match("x")),
        ask_about("a", form=match("y")),
        ask_about("a", answers=("b",)),
        ask_about("a", seed=1),
        Question(messages=(text_message("assistant", "a"),)),
    ]

    async def ask_all() -> None:
        for question in [*asked, *asked]:
            await judge.judge(question)

    asyncio.run(ask_all())
    assert len(says.asked) == len(asked)


def test_whoever_stops_waiting_leaves_the_answer_to_the_others() -> None:
    says = Says(lambda question: 0.5)
    judge = limit(says, cache=2)

    async def ask() -> float:
        first = asyncio.create_task(judge.judge(ask_about("a")))
        await asyncio.sleep(0)
        second = asyncio.create_task(judge.judge(ask_about("a")))
        await asyncio.sleep(0)
        first.cancel()
        return (await second).score

    assert asyncio.run(ask()) == 0.5
    assert len(says.asked) == 1


def test_a_spent_budget_is_no_verdict_and_says_so_in_one_line() -> None:
    says = Says(lambda question: "nonsense", prompt_tokens=1_000_000)
    judge = limit(says, max_retries=5, prices=Prices(prompt_price=0.5, budget=1.0))
    with pytest.raises(NoVerdict, match=r"judge 'grader' has cost 1, and judges\.grader\.budget=1 is spent") as caught:
        asyncio.run(judge.judge(ask_about("a")))
    assert caught.value.usage == Usage(attempts=2, prompt_tokens=2_000_000, cost=1.0)  # two attempts at 0.5
    again = limit(says, prices=Prices(prompt_price=0.5, budget=1.0))
    remember_costs({"grader": again}, [{"judge/grader_cost": 0.75}, {"phase": "sft"}, {"judge/grader_cost": 0.5}])
    with pytest.raises(NoVerdict, match=r"has cost 1\.25"):
        asyncio.run(again.judge(ask_about("a")))


def test_a_budget_needs_a_price_and_a_least_kappa_needs_labels() -> None:
    given = ["judges.a.kind=api", 'judges.a.options={url="http://x/v1", model="m"}']
    with pytest.raises(ConfigError, match=r"judges\.a\.budget=1 needs judges\.a\.prompt_price or"):
        build(*given, "judges.a.budget=1")
    judge = limit(Says(lambda question: 0.5))
    with pytest.raises(ConfigError, match=r"judges\.grader\.min_kappa=0\.5 needs judges\.grader\.labels"):
        asyncio.run(check_judges({"grader": judge}, {"grader": JudgeSection(kind="x", min_kappa=0.5)}))


def build(*overrides: str) -> dict[str, LimitedJudge]:
    return build_judges(load_config([], overrides), refuse_model, refuse_policy)


def write_labels(path: Path, *rows: dict[str, Any]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_a_judge_that_agrees_too_little_is_refused_with_both_numbers(tmp_path: Path) -> None:
    rows = [{"text": "good" if number % 2 else "bad", "label": number % 2} for number in range(20)]
    labels = write_labels(tmp_path / "labels.jsonl", *rows)
    section = JudgeSection(kind="x", labels=labels, min_kappa=0.6)
    right = limit(Says(lambda question: float(question.messages[0].text == "good")))
    seen = asyncio.run(check_judges({"grader": right}, {"grader": section}))
    assert seen == {"grader": f"built; kappa 1.00 [1.00, 1.00], 100% equal, with 20 labels of {labels}"}
    # 8 of 10 good ones and all bad ones: equal 0.9, chance 0.5 * 0.4 + 0.5 * 0.6 = 0.5, kappa 0.8; half of them: 0.5
    asked: list[int] = []

    def half(question: Question) -> float:
        asked.append(1)
        return float(question.messages[0].text == "good" and len(asked) % 4 == 0)

    with pytest.raises(ConfigError) as caught:
        asyncio.run(check_judges({"grader": limit(Says(half))}, {"grader": section}))
    assert str(caught.value).startswith("judge 'grader' agrees too little: kappa 0.50 [")
    assert "below judges.grader.min_kappa=0.6; use a better judge" in str(caught.value)


def test_labels_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    judge = limit(Says(lambda question: RewardError("it refused")))

    def check(path: str) -> None:
        asyncio.run(check_judges({"grader": judge}, {"grader": JudgeSection(kind="x", labels=path)}))

    with pytest.raises(DataError, match=r"labels\.jsonl:2: field 'label' is 7"):
        check(write_labels(tmp_path / "labels.jsonl", {"text": "x", "label": 1}, {"text": "x", "label": 7}))
    with pytest.raises(ConfigError, match=r"judges\.grader\.labels=.*none of 1 labelled questions.*it refused"):
        check(write_labels(tmp_path / "one.jsonl", {"text": "x", "label": 1}))


def constant(said: Any, question: Question) -> Any:
    return said


def test_an_ensemble_gives_the_median_and_abstains_where_members_differ() -> None:
    members = {
        name: limit(Says(partial(constant, score)), name) for name, score in {"a": 0.2, "b": 0.4, "c": 0.9}.items()
    }
    ensemble = Ensemble(members, min_verdicts=3, max_spread=0.7)
    verdict = asyncio.run(ensemble.judge(ask_about("x")))
    assert (verdict.score, verdict.text) == (0.4, "a: 0.2; b: 0.4; c: 0.9")
    with pytest.raises(NoVerdict, match=r"abstains: the scores differ by more than max_spread=0\.5 \(a: 0\.2; b"):
        asyncio.run(Ensemble(members, min_verdicts=3, max_spread=0.5).judge(ask_about("x")))
    broken = {**members, "a": limit(Says(lambda question: RewardError("away")), "a")}
    with pytest.raises(NoVerdict, match=r"2 of 3 gave a verdict, fewer than 3 \(a: judge 'a' gave no verdict: away"):
        asyncio.run(Ensemble(broken, min_verdicts=3, max_spread=1.0).judge(ask_about("x")))
    assert asyncio.run(Ensemble(broken, min_verdicts=2, max_spread=1.0).judge(ask_about("x"))).score == 0.65


def test_an_ensemble_votes_on_words_and_adds_up_what_its_members_take() -> None:
    words = ("correct", "incorrect", "correct")
    members = {
        str(number): limit(Says(partial(constant, f"verdict: {word}"), prompt_tokens=5), str(number))
        for number, word in enumerate(words)
    }
    verdict = asyncio.run(Ensemble(members, min_verdicts=3, max_spread=1.0).judge(ask_about("x", form=match("y"))))
    assert (verdict.score, verdict.mark("verdict")) == (1.0, "correct")
    assert verdict.usage == Usage(attempts=3, prompt_tokens=15)


def test_a_debate_is_heard_by_the_judge_with_the_question_and_its_form() -> None:
    debater = Says(lambda question: f"because {question.form.task.split()[6]}", reply_tokens=3)
    judge = Says(lambda question: "better: second", prompt_tokens=7)
    debate = Debate(limit(debater, "debater"), limit(judge, "judge"), rounds=2)
    verdict = asyncio.run(debate.judge(ask_about("which?", answers=("a", "b"), form=pair())))
    assert (verdict.score, verdict.mark("better")) == (0.0, "second")
    assert verdict.usage == Usage(attempts=5, reply_tokens=12, prompt_tokens=7)  # two sides twice, and the judge
    [heard] = judge.asked
    assert [len(asked.messages) for asked in debater.asked] == [1, 1, 3, 3]
    assert heard.form == pair()
    assert [message.text.split(":")[0] for message in heard.messages[1:]] == [
        f"Case {side}"
        for side in (
            "that it is good, and in a comparison that answer 1 is best",
            "that it is bad, and in a comparison that answer 1 is not best",
        )
    ] * 2
    silent = Debate(limit(Says(lambda question: ""), "debater"), limit(judge, "judge"), rounds=1)
    with pytest.raises(
        NoVerdict, match="a side of the debate is missing: judge 'debater' gave no verdict: the reply is"
    ):
        asyncio.run(silent.judge(ask_about("x")))


def test_judges_of_a_recipe_ask_each_other_in_any_order_but_not_in_circles() -> None:
    api = 'options={url="http://x/v1", model="m"}'
    given = ["judges.a.kind=api", f"judges.a.{api}", "judges.b.kind=api", f"judges.b.{api}"]
    panel = ["judges.panel.kind=ensemble", 'judges.panel.options={judges=["debate", "a"]}']
    debate = ["judges.debate.kind=debate", 'judges.debate.options={debater="b", judge="a"}']
    assert list(build(*panel, *debate, *given)) == ["panel", "debate", "a", "b"]
    with pytest.raises(ConfigError, match=r"judges\.panel asks 'debate', which is none of panel, a, b"):
        build(*panel, *given)
    with pytest.raises(ConfigError, match=r"judges\.panel asks itself, by panel -> debate -> panel"):
        build(*panel, "judges.debate.kind=debate", 'judges.debate.options={debater="b", judge="panel"}', *given)


def seat(judge: Any) -> EpisodeJudges:
    return EpisodeJudges({"grader": limit(judge)})


def test_a_comparison_in_both_orders_takes_a_place_for_no_opinion() -> None:
    def by_text(question: Question) -> str:
        return f"better: {'first' if question.answers[0] == 'good' else 'second'}"

    for say, value in ((by_text, 1.0), (lambda q: "better: first", 0.5), (lambda q: "better: tie", 0.5)):
        judges = seat(Says(say))  # type: ignore[arg-type]
        assert asyncio.run(compare(judges, "grader", "good", "bad", about="which?")) == value
        assert [each.question.answers for each in judges.judgements] == [("good", "bad"), ("bad", "good")]
    assert asyncio.run(compare(seat(Says(by_text)), "grader", "bad", "good")) == 0.0


def test_a_ranking_returns_each_answers_own_score_whatever_the_order_shown() -> None:
    answers = [f"{number / 10:g}" for number in range(8)]

    def say(question: Question) -> str:  # by falling score, as a judge may that sorts its list
        shown = sorted(enumerate(question.answers, 1), key=lambda each: each[1], reverse=True)
        return "\n".join(f"answer {number}: {text}" for number, text in shown)

    says = Says(say)
    scores = asyncio.run(rank(seat(says), "grader", answers))
    assert scores == [float(answer) for answer in answers]
    assert says.asked[0].answers != tuple(answers)
    with pytest.raises(RewardError, match="has no line 'answer 8: NUMBER'"):
        asyncio.run(
            rank(seat(Says(lambda question: say(replace(question, answers=question.answers[:7])))), "grader", answers)
        )


def test_a_failed_question_is_kept_with_its_reason_and_usage() -> None:
    judges = seat(Says(lambda question: "no idea", prompt_tokens=4))
    with pytest.raises(RewardError):
        asyncio.run(judges.ask("grader", "x", truth=1.0))
    [judgement] = judges.judgements
    assert (judgement.verdict, judgement.truth, judgement.usage.prompt_tokens) == (None, 1.0, 4)
    assert judgement.problem == "judge 'grader' gave no verdict: the reply 'no idea' has no line 'score: NUMBER'"
    assert judgement.question.form == RATING
