"""Values as people write them on a command line."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.config.load import load_config, parse_value
from turnwise.config.values import expand_home


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("[tensorboard]", ["tensorboard"]),
        ("[tensorboard, wandb]", ["tensorboard", "wandb"]),
        ("[ my.package:Tracker ,mlflow ]", ["my.package:Tracker", "mlflow"]),
        ("[1, two, 3.5, true, 'x, y', \"z]\"]", [1, "two", 3.5, True, "x, y", "z]"]),
        ("[[a, b], [c]]", [["a", "b"], ["c"]]),
        ("{search = off, top = 3}", {"search": "off", "top": 3}),
        ("{path=~/data/a b.jsonl, more=[x]}", {"path": "~/data/a b.jsonl", "more": ["x"]}),
        ("[C:\\data]", ["C:\\data"]),
        ("[]", []),
        ("{}", {}),
        ("[a", "[a"),
        ("[a,,b]", "[a,,b]"),
        ("abc[1]", "abc[1]"),
    ],
)
def test_a_list_or_table_needs_no_quotes_around_words(text: str, value: Any) -> None:
    assert parse_value(text) == value


@given(st.lists(st.from_regex(r"[A-Za-z_][A-Za-z0-9_./:-]{0,12}", fullmatch=True)))
def test_every_list_of_words_is_that_list(words: list[str]) -> None:
    taken = [{"true": True, "false": False}.get(word, word) for word in words]
    if not {"inf", "nan"} & set(words):
        assert parse_value(f"[{', '.join(words)}]") == taken


def test_the_readme_names_a_tracker_without_quotes() -> None:
    assert load_config([], ["trackers.names=[tensorboard]"]).trackers.names == ["tensorboard"]


def test_home_is_found_in_every_option_that_names_a_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    config = load_config(
        [{"run": {"output": "~/runs"}, "roles": {"b": "frozen:~/models/a"}}],
        ["environment.args={path='~/d.jsonl', paths=['~/e', 'x']}", "trackers.tensorboard.dir=~/tb", "model.path=~"],
        changes={"train.lr": 1e-6, "environment.mixture": {}},
    )
    assert config.run.output == "/home/me/runs"
    assert config.roles == {"b": "frozen:/home/me/models/a"}
    assert config.environment.args == {"path": "/home/me/d.jsonl", "paths": ["/home/me/e", "x"]}
    assert config.trackers.tensorboard.dir == "/home/me/tb"
    assert config.model.path == "/home/me"


@pytest.mark.parametrize("text", ["a~/b", "~ 5 metres", "~~x~~", "", "approx. ~/3"])
def test_a_text_that_is_no_path_stays(text: str) -> None:
    assert expand_home(text) == text
