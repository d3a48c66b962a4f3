"""What held-out tasks share with training tasks, on small sets whose shares are counted by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.cards.overlap import Asked, compare_tasks, find_grams, find_names, find_template


def ask(prompt: str, gold: str = "", content: str = "") -> Asked:
    return Asked(prompt=prompt, content=content or f"{prompt} {gold}", gold=gold)


def test_names_are_runs_of_capitals_within_sentences_quotes_and_the_gold_answer() -> None:
    task = ask('Who wrote Blue Lantern? Ask Mira Tolen about "red fox" there.', gold="Orin Vale")
    assert find_names(task) == {"blue lantern", "mira tolen", "red fox", "orin vale"}


def test_a_template_is_what_is_left_without_names_and_numbers() -> None:
    assert find_template('who is 3 years older than Mira Tolen, "x"?') == "who is _ years older than _, _?"
    assert find_template("who is 41 years older than Ivo, ") == "who is _ years older than _, "


def test_a_short_text_is_one_gram() -> None:
    assert find_grams("A b, c") == {("a", "b", "c")}
    assert len(find_grams("a b c d e f g h i j")) == 3  # 10 words: runs start at 0, 1 and 2
    assert find_grams(" . ") == set()


def test_whole_tasks_prompts_and_a_table_of_answers_are_told_apart() -> None:
    train = [ask("where is the key", "box"), ask("where is the key", "box"), ask("where is the key", "bag")]
    heldout = [
        ask("where is the key", "box", content="house 7"),  # the table says box: right, and not a training task
        ask("where is the key", "bag", content="house 8"),  # the table says box: wrong
        ask("where is the cup", "box"),  # not in the table
        ask("where is the key", "bag"),  # a training task, on which the table is wrong
    ]
    overlap = compare_tasks(heldout, train)
    assert (overlap.same_task, overlap.same_prompt, overlap.looked_up) == (0.25, 0.75, 0.25)
    # Of box and bag, the only names, both are training answers.
    assert (overlap.same_names, overlap.heldout, overlap.train) == (None, 4, 3)  # each is in half of the tasks: wording
    assert (overlap.templates, overlap.same_template) == (2, 0.75)


def test_names_and_grams_that_few_tasks_have_are_counted() -> None:
    heldout = [ask(f"say who lives near the old mill of n{number} today", f"P{number}") for number in range(20)]
    train = [ask("say who lives near the old mill of n3 today", "P4")]
    overlap = compare_tasks(heldout, train)
    assert overlap.same_names == 1 / 20  # P4 of P0 to P19
    assert overlap.same_grams == 1 / 20  # runs with n3; "say who lives near the old mill of" is the wording of all
    assert compare_tasks([ask("a"), ask("a", "x")], []).looked_up == 0.0
    assert compare_tasks([ask("a"), ask("a")], []).looked_up is None


def test_nothing_to_compare_is_refused() -> None:
    with pytest.raises(ValueError, match="no held-out task"):
        compare_tasks([], [])


words = st.text("ab ", min_size=1, max_size=12)


@given(st.lists(st.builds(ask, words, words), min_size=1, max_size=12))
def test_tasks_that_are_all_trained_on_share_everything(tasks: list[Asked]) -> None:
    overlap = compare_tasks(tasks, tasks)
    assert overlap.same_task == overlap.same_prompt == overlap.same_template == 1.0
    assert overlap.same_names in (None, 1.0)


@given(st.lists(st.builds(ask, words, words), min_size=1, max_size=8), st.lists(st.builds(ask, words, words)))
def test_shares_are_shares(heldout: list[Asked], train: list[Asked]) -> None:
    overlap = compare_tasks(heldout, train)
    shares = (overlap.same_task, overlap.same_prompt, overlap.looked_up, overlap.same_names, overlap.same_grams)
    assert all(share is None or 0.0 <= share <= 1.0 for share in (*shares, overlap.same_template))
    assert overlap.same_task <= overlap.same_prompt <= overlap.same_template
