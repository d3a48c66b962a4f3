"""The exception tree and the one boundary between user code and the system."""

import pickle

import pytest

from turnwise.core import errors
from turnwise.core.errors import ConfigError, RewardError, StoreError, ToolFailure, ToolTimeout, TurnwiseError, boundary

CLASSES = [value for value in vars(errors).values() if isinstance(value, type)]
TREE = [value for value in CLASSES if issubclass(value, TurnwiseError) and value is not TurnwiseError]


@pytest.mark.parametrize("error", TREE, ids=lambda error: error.__name__)
def test_each_error_is_also_a_standard_one_and_survives_a_process_boundary(error: type[TurnwiseError]) -> None:
    standard = [
        base
        for base in error.__mro__
        if base.__module__ == "builtins" and base not in (Exception, BaseException, object)
    ]
    assert standard
    raised = error("the name, the value, the remedy")
    copy = pickle.loads(pickle.dumps(raised))
    assert (type(copy), str(copy)) == (error, str(raised))


def test_boundary_names_what_failed_and_keeps_the_cause() -> None:
    message = "reward 'f1': ZeroDivisionError: division by zero"
    with pytest.raises(RewardError, match=message) as caught, boundary(RewardError, "reward 'f1'"):
        1 / 0  # noqa: B018
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


@pytest.mark.parametrize(
    "passing", [ConfigError("x"), ToolTimeout("x"), ToolFailure("x"), KeyboardInterrupt(), SystemExit(3)], ids=repr
)
def test_boundary_lets_turnwise_errors_messages_to_the_model_and_ctrl_c_through(passing: BaseException) -> None:
    with pytest.raises(type(passing)) as caught, boundary(StoreError, "anything"):
        raise passing
    assert caught.value is passing


def test_boundary_is_silent_when_nothing_fails() -> None:
    with boundary(StoreError, "anything"):
        value = 1
    assert value == 1


@pytest.mark.parametrize("error", [ConfigError, RewardError])
def test_an_iterator_that_ends_in_user_code_does_not_pass(error: type[TurnwiseError]) -> None:
    # RewardError is a RuntimeError, which a generator of contextlib would have exchanged for the StopIteration again.
    with pytest.raises(error, match=r"^reward: StopIteration: $"), boundary(error, "reward"):
        next(iter([]))
