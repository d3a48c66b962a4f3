"""A remedy that names a switch names one that exists."""

import inspect
import re

import pytest

from turnwise.algorithms.credit_checks import FIELD_REMEDIES
from turnwise.algorithms.credit_table import CREDIT_METHODS
from turnwise.config.options import list_options
from turnwise.config.run import RunConfig
from turnwise.core import protocols, types
from turnwise.credit import gold_answers

SECTIONS = "|".join(RunConfig.model_fields)


def find_names() -> set[str]:
    """Attributes and methods a user can give: of protocols and of the nouns."""
    classes = [
        member
        for module in (protocols, types, gold_answers)
        for _, member in inspect.getmembers(module, inspect.isclass)
    ]
    return {name for owner in classes for name in (*vars(owner), *getattr(owner, "__annotations__", {}))}


def problems(text: str) -> list[str]:
    """Names in a remedy that do not exist; or that the remedy names nothing."""
    keys = re.findall(rf"\b(?:{SECTIONS})\.[a-z_.]*[a-z_]", text)
    names = re.findall(r"`(\w+)`", text)
    methods = re.findall(r"credit\.method='(\w+)'", text)
    wrong = [key for key in keys if key not in list_options(RunConfig)]
    wrong += [name for name in names if name not in find_names()]
    wrong += [name for name in methods if name not in CREDIT_METHODS]
    return wrong if keys or names else [f"nothing is named in {text!r}"]


@pytest.mark.parametrize("field", sorted(FIELD_REMEDIES))
def test_a_remedy_names_what_exists(field: str) -> None:
    assert problems(FIELD_REMEDIES[field]) == []


def test_every_need_has_a_remedy() -> None:
    assert {need for method in CREDIT_METHODS.values() for need in method.needs} <= set(FIELD_REMEDIES)


def test_what_does_not_exist_is_found() -> None:
    assert problems("train a progress model") == ["nothing is named in 'train a progress model'"]
    assert problems("set critic.size, or give a `mood` and `glow`") == ["critic.size", "mood", "glow"]
