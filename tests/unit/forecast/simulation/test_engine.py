"""A simulated engine against times computed by hand and against closed forms of queues."""

import math
from random import Random

import pytest

from turnwise.forecast.simulation.agenda import Agenda
from turnwise.forecast.simulation.costs import EngineCosts
from turnwise.forecast.simulation.engine import Reply, SimulatedEngine
from turnwise.forecast.simulation.stations import Station


def run_replies(costs: EngineCosts, replies: list[tuple[float, int, int]]) -> tuple[list[float], SimulatedEngine]:
    """When replies of (start, context, sampled) end."""
    agenda = Agenda()
    engine = SimulatedEngine(agenda, costs)
    ends = [math.nan] * len(replies)

    def submit(index: int, context: int, sampled: int) -> None:
        def note() -> None:
            ends[index] = agenda.now_s

        engine.submit(Reply(context, context, sampled, note))

    for index, (start, context, sampled) in enumerate(replies):
        agenda.after(start, lambda i=index, c=context, s=sampled: submit(i, c, s))  # type: ignore[misc]
    while agenda.advance():
        pass
    return ends, engine


def test_two_replies_share_the_engine() -> None:
    # Alone a token takes 1 + 1 = 2 s: five tokens until 10 s. Together a token takes 1 + 2 = 3 s: five more until 25 s.
    ends, _ = run_replies(EngineCosts(step_s=1, sequence_s=1), [(0, 0, 10), (10, 0, 5)])
    assert ends == pytest.approx([25, 25])


def test_a_context_stalls_everybody() -> None:
    # The second reply's 4 tokens of context take 2 s, in which the first one has nothing.
    ends, _ = run_replies(EngineCosts(step_s=1, context_s=0.5), [(0, 0, 10), (3, 4, 1)])
    assert ends == pytest.approx([12, 6])


def test_attention_grows_with_every_token() -> None:
    # 10 steps of 1 s, and 0.01 s per attended token: 50 at first, one more each step; 0.01 * (10 * 50 + 10^2 / 2).
    ends, _ = run_replies(EngineCosts(step_s=1, attended_s=0.01), [(0, 50, 10)])
    assert ends == pytest.approx([10 + 5 + 0.5])


def test_replies_beyond_the_slots_wait() -> None:
    ends, engine = run_replies(EngineCosts(step_s=1, slots=1), [(0, 0, 3), (0, 0, 4), (1, 0, 5)])
    assert ends == pytest.approx([3, 7, 12])
    assert engine.occupancy.seconds(20.0) == pytest.approx({"sampling": 12, "admission": 8})


def test_a_cancelled_reply_gives_its_share_back() -> None:
    agenda = Agenda()
    engine = SimulatedEngine(agenda, EngineCosts(step_s=0.5, sequence_s=0.5))
    ends: list[float] = []
    stays, goes = (Reply(0, 0, 10, lambda: ends.append(agenda.now_s)) for _ in range(2))
    engine.submit(stays)
    engine.submit(goes)
    agenda.after(6, lambda: engine.cancel(goes))  # 4 tokens at 1.5 s, then 6 at 1 s
    while agenda.advance():
        pass
    assert ends == pytest.approx([12])


def test_new_weights_compute_the_context_again() -> None:
    agenda = Agenda()
    engine = SimulatedEngine(agenda, EngineCosts(step_s=1, context_s=0.1))
    ends: list[float] = []
    engine.submit(Reply(20, 20, 10, lambda: ends.append(agenda.now_s)))  # 2 s of context
    agenda.after(7, lambda: engine.publish(1, 3.0))  # after 5 tokens: 3 s, and 25 tokens of context
    while agenda.advance():
        pass
    assert ends == pytest.approx([2 + 10 + 3 + 2.5])
    assert engine.occupancy.seconds(17.5) == pytest.approx({"sampling": 14.5, "weights": 3})


def repair_rate(machines: int, load: float) -> float:
    """Throughput times service time of the machine-repair queue; `load` is service over thinking time."""
    weights = [math.perm(machines, n) * load**n for n in range(machines + 1)]
    return 1 - weights[0] / sum(weights)


def test_an_engine_that_only_shares_is_the_machine_repair_queue() -> None:
    # Processor sharing has the throughput of first come, first served for exponential lengths; 5 trajectories think
    # for 3 s on average between replies of 100 tokens of 0.01 s.
    agenda, random = Agenda(), Random(1)
    engine = SimulatedEngine(agenda, EngineCosts(step_s=1e-9, sequence_s=0.01))
    done = 0

    def ask() -> None:
        engine.submit(Reply(0, 0, round(random.expovariate(1 / 100)) + 1, think))

    def think() -> None:
        nonlocal done
        done += 1
        agenda.after(random.expovariate(1 / 3), ask)

    for _ in range(5):
        think()
    done = 0
    while agenda.now_s < 6000:
        agenda.advance()
    assert done / agenda.now_s == pytest.approx(repair_rate(5, 1.005 / 3) / 1.005, rel=0.03)


@pytest.mark.parametrize("servers", [1, 3])
def test_tools_are_a_queue_with_that_many_servers(servers: int) -> None:
    # M/M/c: arrivals at 0.6 of what the servers can do; the mean number present by Erlang's formula and Little's law.
    agenda, random = Agenda(), Random(2)
    station = Station(agenda, servers)
    rate, times = 0.6 * servers, list[float]()

    def arrive() -> None:
        began = agenda.now_s
        station.serve(random.expovariate(1.0), lambda: times.append(agenda.now_s - began))
        agenda.after(random.expovariate(rate), arrive)

    arrive()
    while agenda.now_s < 12_000 / servers:
        agenda.advance()
    waiting = rate**servers / math.factorial(servers) / 0.4
    waiting /= sum(rate**n / math.factorial(n) for n in range(servers)) + waiting
    assert sum(times) / len(times) == pytest.approx(1 + waiting / (servers - rate), rel=0.06)
