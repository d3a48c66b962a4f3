"""What tests of agents, environments and engines need: builders of small data, a tiny policy, a tiny environment
family, the scripted engine, and the check of an environment.

Public: nothing here depends on pytest, and `examples/rl_loop.py` trains on the same family."""

from turnwise.engines.scripted import ScriptedEngine
from turnwise.testing.builders import make_completion, make_group, make_task, make_trajectory, make_turn
from turnwise.testing.environment_check import CheckLine, CheckPlan, check_environment
from turnwise.testing.notes import NotesFamily
from turnwise.testing.policies import build_tiny_model, build_tiny_renderer, build_tiny_tokenizer

__all__ = [
    "CheckLine",
    "CheckPlan",
    "NotesFamily",
    "ScriptedEngine",
    "build_tiny_model",
    "build_tiny_renderer",
    "build_tiny_tokenizer",
    "check_environment",
    "make_completion",
    "make_group",
    "make_task",
    "make_trajectory",
    "make_turn",
]
