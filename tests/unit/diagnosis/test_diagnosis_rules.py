"""Every rule finds its fault in a made-up run, leaves the sound one alone, and is not fooled by a run that learns."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runs_with_faults import (
    NUM_STEPS,
    OPTIONS,
    STILL,
    make_credited,
    make_facts,
    make_record,
    make_rows,
    make_summary,
)

from turnwise.diagnosis.facts import ToolCount
from turnwise.diagnosis.record import Record
from turnwise.diagnosis.rules import diagnose

RISING: dict[str, Any] = {"rollout__success": (0.2, 0.9), "rollout__reward": (0.2, 0.9)}
SILENT = {"credit__no_signal_groups": 1.0}


def name_causes(record: Record) -> list[str]:
    return [finding.cause for finding in diagnose(record).findings]


FAULTS: list[tuple[str, dict[str, Any]]] = [
    ("frozen_weights", {"train__changed_share": 0.0}),
    ("frozen_weights", {"train__served_share": 0.01}),
    ("lr_low", {"train__relative_update": 1e-5}),
    ("lr_high", {"train__relative_update": 0.4}),
    ("sampler_apart", {"train__logprob_gap_mean": 0.2}),
    ("duplicate_groups", {"rollout__identical_groups": 0.9}),
    ("too_easy", {**SILENT, "rollout__success": 0.99}),
    ("too_hard", {**SILENT, "rollout__success": 0.0}),
    ("constant_reward", SILENT),
    ("small_groups", {"credit__no_signal_groups": 0.72, "rollout__success": 0.18}),
    ("format", {"rollout__parse_errors": 1.8, "train__entropy": 3.0, "rollout__success": 0.0}),
    ("truncation", {"rollout__truncated": 0.6}),
    ("entropy_collapse", {"train__entropy": (0.5, 0.0)}),
    ("entropy_growth", {"train__entropy": (0.3, 3.0)}),
    ("length_drift", {"rollout__length_mean": (20.0, 60.0)}),
    ("length_drift", {"rollout__length_mean": (60.0, 20.0)}),
    ("kl_runaway", {"train__kl_reference": (0.0, 4.0)}),
    ("clip_saturation", {"train__clip_fraction": 0.6}),
    ("staleness", {"train__staleness_mean": (0.0, 6.0)}),
    ("hacking", {"rollout__reward": (0.2, 0.9), "rollout__truth_order": (1.0, 0.3)}),
    ("hacking", {"rollout__reward": (0.2, 0.9)}),
]


@pytest.mark.parametrize(("cause", "changes"), FAULTS)
def test_a_fault_in_the_metrics_is_found_and_named_first(cause: str, changes: dict[str, Any]) -> None:
    findings = diagnose(make_record(**changes)).findings
    assert findings[0].cause == cause
    assert findings[0].evidence
    assert ";" not in findings[0].problem, "an alarm is known by its words up to the first semicolon"


def test_a_sound_run_is_accused_of_nothing_whether_it_rises_or_not() -> None:
    assert name_causes(make_record()) == []
    assert name_causes(make_record(**RISING)) == []


@pytest.mark.parametrize(
    "symptom",
    [
        {"rollout__length_mean": (20.0, 60.0)},
        {"train__entropy": (0.5, 0.0)},
        {"train__staleness_mean": 4.0},
        {"rollout__truncated": 0.6},
    ],
)
def test_symptoms_of_a_run_that_learns_are_no_accusation(symptom: dict[str, Any]) -> None:
    assert name_causes(make_record(**{**symptom, **RISING})) == []


def test_weights_that_do_not_move_are_said_also_of_a_run_that_ended_by_it() -> None:
    ended = replace(make_record(), ended="TrainingError: updates are below the resolution of the weights: each of ...")
    assert name_causes(ended) == ["frozen_weights"]


def test_identical_attempts_that_are_paid_apart_are_noise() -> None:
    groups = [make_facts(num_alike=10, num_alike_paid_apart=4) for _ in range(4)]
    finding = diagnose(make_record(groups)).findings[0]
    assert finding.cause == "reward_noise"
    assert "16 of 40 pairs" in finding.evidence[0]  # 4 groups with 4 of 10 each
    few = [make_facts(num_alike=10, num_alike_paid_apart=4) for _ in range(2)]
    assert name_causes(make_record(few)) == [], "20 pairs are too few"


def test_credit_against_the_outcome_is_found_where_it_happens() -> None:
    right, wrong = [(0.5, 0.5), (-0.5, -0.5)] * 30, [(-0.5, 0.5), (0.5, -0.5)] * 30
    sound = make_facts(turns=make_credited(right, is_last=True) + make_credited(right))
    assert name_causes(make_record([sound])) == []
    early = make_facts(turns=make_credited(right, is_last=True) + make_credited(wrong))
    finding = diagnose(make_record([early])).findings[0]
    assert finding.cause == "credit"
    # Of the 60 early turns every one has -0.5 * 0.5 or 0.5 * -0.5: the cosine is -1.
    assert "cosine of advantage and outcome -1.00 over 60 turns before" in finding.evidence[0]
    nothing = make_facts(turns=make_credited(right, is_last=True) + make_credited([(0.0, 0.5), (0.0, -0.5)] * 30))
    assert name_causes(make_record([nothing])) == ["credit"], "early turns without credit"


def test_credit_that_follows_the_length_is_named_so_and_not_as_credit() -> None:
    wrong = make_credited([(-0.5, 0.5), (0.5, -0.5)] * 30)
    # The shorter members get the credit, whether they succeed or not: the cosine of credit and length is -1.
    paid: dict[str, Any] = {"lengths": (30, 10, 30, 10), "advantages": (-1.0, 1.0, -1.0, 1.0), "turns": wrong}
    finding = diagnose(make_record([make_facts((1.0, 1.0, 0.0, 0.0), **paid)] * 20)).findings[0]
    assert (finding.cause, finding.evidence[0]) == (
        "length_drift",
        "cosine of advantage and length -1.00 within the stored groups",
    )
    # Where the longer members fail, credit for success and for a short reply are the same: neither is accused.
    sound = make_facts((0.0, 1.0, 0.0, 1.0), **(paid | {"turns": ()}))
    assert name_causes(make_record([sound] * 20)) == []
    # Where the longer ones succeed, credit is as much against success as for a short reply.
    assert name_causes(make_record([make_facts((1.0, 0.0, 1.0, 0.0), **paid)] * 20)) == ["credit"]
    # A reward that pays for length is to blame itself.
    pays = make_facts((0.0, 1.0, 0.0, 1.0), (1.0, 1.0, 0.0, 0.0), **(paid | {"turns": ()}))
    assert name_causes(make_record([pays] * 20, rollout__truth_order=0.3)) == ["hacking"]


def test_a_kind_that_falls_while_training_is_solved_is_overfitting() -> None:
    fallen = {"kind": "1hop", "n": 20, "first": 0.85, "second": 0.05, "difference": -0.8, "p_holm": 0.002}
    record = replace(
        make_record(rollout__success=(0.9, 0.99)),
        summaries=[make_summary(0, 0.28, 0.21, 0.36), make_summary(12, 0.19, 0.13, 0.26)],
        compared=[fallen, {**fallen, "kind": "all"}],
    )
    finding = diagnose(record).findings[0]
    assert (finding.cause, finding.evidence[0]) == (
        "overfitting",
        "held-out tasks of kind 1hop: 0.85 before and 0.05 after, the same 20 tasks (p = 0.002)",
    )
    assert name_causes(replace(record, compared=[{**fallen, "p_holm": 0.2}])) == []


def test_trajectories_that_become_shorter_while_success_trebles_are_not_called_worse() -> None:
    # Shorter and three times as often right, in too few steps for three standard errors.
    noise = [0.0, 0.1, -0.1, 0.05] * 3
    rows = make_rows(rollout__length_mean=(60.0, 30.0), rollout__success=(0.05, 0.2))
    for row, each in zip(rows, noise, strict=True):
        row["rollout/success"] = (row["rollout/success"] or 0.0) + each
    record = Record(steps=rows, options=OPTIONS)
    assert (record.learned, record.may_learn) == (False, True)
    assert [finding.cause for finding in diagnose(record).findings] == []


def test_what_a_collapse_brings_is_not_blamed_for_it() -> None:
    # The first policy knew the format, met no limit and had signal; 16 updates of 0.008 a step took all of it away.
    lost: dict[str, Any] = {
        "rollout__success": (0.4, 0.0),
        "rollout__truncated": (0.0, 0.9),
        "rollout__parse_errors": (0.0, 1.9),
        "rollout__turns": 2.0,
        "train__relative_update": (0.008, 0.001),
        "credit__no_signal_groups": (0.7, 1.0),
    }
    record = make_record(**lost)
    options: dict[str, Any] = {**OPTIONS, "loss": {"updates_per_step": 16, "epochs": 1}}
    finding, *others = diagnose(replace(record, options=options)).findings
    assert (finding.cause, finding.evidence[0]) == (
        "lr_high",
        "train/relative_update 0.008 of the weights' length in step 1, 16 times",
    )
    assert [other.cause for other in others] == ["truncation"]
    assert "lr_high" not in name_causes(record), "0.008 once is no large step"


def test_a_tool_that_raises_is_named_with_what_it_raised() -> None:
    broken = make_facts(tools={"search": ToolCount(calls=30, raised=12, example="OSError: no index")})
    finding = diagnose(make_record([broken])).findings[0]
    assert finding.cause == "tool_failing"
    assert "12 of 30 stored calls of 'search' raised: OSError: no index" in finding.evidence[0]
    sound = make_facts(tools={"search": ToolCount(calls=30, raised=1, example="OSError: no index")})
    assert name_causes(make_record([sound])) == []


def test_tasks_that_the_first_policy_solved_are_not_too_hard() -> None:
    none: dict[str, Any] = {"rollout__success": (0.03, 0.0), "credit__no_signal_groups": (0.9, 1.0)}
    assert name_causes(make_record(**none)) == ["too_hard"]
    solved = [make_summary(0, 0.16, 0.1, 0.24), make_summary(12, 0.0, 0.0, 0.04)]
    assert "too_hard" not in name_causes(replace(make_record(**none), summaries=solved))
    # Training success wanders above 5%, held-out success does not.
    some: dict[str, Any] = {"rollout__success": (0.08, 0.04), "credit__no_signal_groups": (0.9, 1.0)}
    unsolved = [make_summary(step, 0.03, 0.01, 0.08) for step in (0, 12)]
    assert name_causes(replace(make_record(**some), summaries=unsolved)) == ["too_hard"]


def test_a_tool_that_a_learning_policy_always_calls_wrongly_is_not_accused() -> None:
    # As in a run of proofs/coq that rose from 0.31 to 0.58: 96% of its calls of `destruct` were refused.
    refused: dict[str, Any] = {"tool__destruct_errors": 0.96, "tool__destruct_calls": 30.0}
    assert name_causes(make_record(**refused)) == ["tool_failing"]
    assert name_causes(make_record(**refused, **RISING)) == []


def test_tasks_of_which_most_are_solved_and_others_never_are_too_easy_and_not_small_groups() -> None:
    # As in the gap world of benchmarks/curricula.py: 84% of the questions have one hop, and no other is ever solved.
    groups = [make_facts((1.0, 1.0))] * 84 + [make_facts((0.0, 0.0))] * 16
    agreed: dict[str, Any] = {"credit__no_signal_groups": 0.72, "rollout__success": 0.84}
    finding = diagnose(make_record(groups, **agreed)).findings[0]
    assert (finding.cause, finding.evidence[2]) == (
        "too_easy",
        "of 100 stored groups 84% are solved by all members and 16% by none",
    )
    assert name_causes(make_record(groups[50:], **agreed)) == ["too_easy"], "34 of 50 are solved by all"
    assert name_causes(make_record(groups[70:], **agreed)) == ["small_groups"], "14 of 30"


def test_a_tool_that_ended_the_run_before_its_first_step_is_named() -> None:
    ended = "EnvironmentFault: 92 of 146 trajectories could not be scored: tool 'search' crashed: OSError: no index"
    said = diagnose(Record(steps=[], options=OPTIONS, ended=ended))
    assert [finding.cause for finding in said.findings] == ["tool_failing"]
    assert said.ended == ended
    assert diagnose(Record(steps=[], options=OPTIONS, ended="StoreError: disk full")).findings == ()


def test_members_that_fare_differently_for_one_reward_show_a_constant_reward() -> None:
    mixed = [make_facts((0.5, 0.5), truths=(1.0, 0.0))] * 4
    assert name_causes(make_record(mixed, **SILENT)) == ["constant_reward"]
    alike = [make_facts((0.5, 0.5), truths=(0.0, 0.0))] * 4
    assert "constant_reward" not in name_causes(make_record(alike, **SILENT))


def test_copies_of_solved_attempts_are_no_fault() -> None:
    solved = [make_facts((1.0, 1.0), is_identical=True)] * 8
    assert name_causes(make_record(solved, rollout__identical_groups=0.9)) == []
    failed = [make_facts((0.0, 0.0), is_identical=True)] * 8
    assert name_causes(make_record(failed, rollout__identical_groups=0.9)) == ["duplicate_groups"]


def test_observation_tokens_that_train_are_found_in_the_ledger() -> None:
    assert name_causes(replace(make_record(), context_trained=7)) == ["observations_train"]


def test_a_fall_on_heldout_tasks_beside_a_rise_in_training_is_overfitting() -> None:
    summaries = (make_summary(0, 0.5, 0.4, 0.6), make_summary(12, 0.2, 0.13, 0.29))
    assert name_causes(replace(make_record(**RISING), summaries=summaries)) == ["overfitting"]
    assert name_causes(replace(make_record(**RISING), summaries=summaries[:1])) == []


def test_an_evaluation_of_ten_tasks_sees_nothing() -> None:
    summaries = (make_summary(0, 0.3, 0.11, 0.6, n=10), make_summary(12, 0.4, 0.17, 0.69, n=10))
    finding = diagnose(replace(make_record(), summaries=summaries)).findings[0]
    assert finding.cause == "evaluation_noise"
    # Half-widths 0.245 and 0.26; the difference has hypot(0.245, 0.26) = 0.357, and (0.357 / 0.1)^2 * 10 = 127.6.
    assert "a difference below 0.36 is not seen" in finding.evidence[1]
    assert "128 tasks" in finding.first


def test_evidence_of_a_broken_part_comes_before_symptoms() -> None:
    record = make_record(train__logprob_gap_mean=0.2, train__entropy=(0.3, 3.0), rollout__length_mean=(20.0, 60.0))
    causes = name_causes(record)
    assert causes[0] == "sampler_apart"
    assert set(causes[1:]) == {"entropy_growth", "length_drift"}


def test_what_cannot_be_judged_is_said() -> None:
    rows = [{"step": 1.0, **STILL, "train/loss": None}]
    diagnosis = diagnose(Record(steps=rows, options=OPTIONS))
    assert diagnosis.findings == ()
    text = "\n".join(diagnosis.missing)
    assert "1 RL steps are too few" in text
    assert "not finite in 1 steps, the first of them 1: train/loss" in text
    assert "fewer than two held-out evaluations" in text


METRIC = st.one_of(st.none(), st.floats(-1e6, 1e6), st.just(0.0))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.dictionaries(st.sampled_from(sorted(STILL)), METRIC), min_size=1, max_size=NUM_STEPS))
def test_any_numbers_lead_to_a_diagnosis(rows: list[dict[str, float | None]]) -> None:
    steps = [{**row, "step": float(index)} for index, row in enumerate(rows, start=1)]
    diagnosis = diagnose(Record(steps=steps, options=OPTIONS))
    assert len({finding.cause for finding in diagnosis.findings}) == len(diagnosis.findings)
    tiers = [finding.tier for finding in diagnosis.findings]
    assert tiers == sorted(tiers)
