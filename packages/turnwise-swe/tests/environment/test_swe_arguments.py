"""Arguments of the family `swe`."""

from typing import Any

import pytest
from family_sections import WRONG, check_defaults, check_refusal

from turnwise_swe.environment.arguments import SweArguments


def test_every_argument_may_be_given_as_its_default() -> None:
    check_defaults("swe", SweArguments)


@pytest.mark.parametrize(("arguments", "message"), WRONG)
def test_what_is_wrong_with_an_argument_of_swe_is_said(arguments: dict[str, Any], message: str) -> None:
    check_refusal("swe", arguments, message)
