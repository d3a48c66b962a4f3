"""A planner and its workers written with LangGraph and langchain-openai: the planner says which notes to read, a worker
reads each of them, all at the same time, and the planner puts together what they found.

It is an ordinary graph; that its models are being trained shows nowhere. `recipes/agents/team.toml` trains it.
"""

from __future__ import annotations

import operator
from typing import Annotated, Any, TypedDict

from agent_langgraph import ask_reader, build_graph, connect
from langchain_core.messages import AnyMessage, HumanMessage
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send

from turnwise.core.types import Reward, RewardPart, Scored, Task
from turnwise.testing.errands import MAX_WORKERS, NOTHING, describe_found, read_words


class Found(TypedDict):
    """What a worker was sent to, and the code that it found."""

    place: int
    name: str
    code: str


class State(TypedDict):
    """The planner's conversation, and what its workers found, in the order in which they ended."""

    messages: list[AnyMessage]
    found: Annotated[list[Found], operator.add]


def build_team(notes: dict[str, str], base_url: str, api_key: str) -> Any:
    """Build a graph of a planner, which answers twice, and the workers that it sends out in between."""
    model = connect(base_url, api_key)
    planner = model.bind(model="policy/planner")
    reader = build_graph(notes, model, "policy/worker")

    async def plan(state: State) -> dict[str, Any]:
        return {"messages": [*state["messages"], await planner.ainvoke(state["messages"])]}

    def send(state: State) -> list[Send] | str:
        names = read_words(state["messages"][-1].text)[:MAX_WORKERS]
        return [Send("work", {"place": place, "name": name}) for place, name in enumerate(names)] or END

    async def work(sent: Found) -> dict[str, Any]:
        said = await ask_reader(reader, f"start {sent['name']}")
        return {"found": [{**sent, "code": " ".join(read_words(said)) or NOTHING}]}

    async def answer(state: State) -> dict[str, Any]:
        codes = [each["code"] for each in sorted(state["found"], key=lambda each: each["place"])]
        messages = [*state["messages"], HumanMessage(describe_found(codes))]
        return {"messages": [*messages, await planner.ainvoke(messages)]}

    graph = StateGraph(State)
    graph.add_node("plan", plan)
    graph.add_node("work", work)
    graph.add_node("answer", answer)
    graph.add_edge(START, "plan")
    graph.add_conditional_edges("plan", send, ["work", END])
    graph.add_edge("work", "answer")
    graph.add_edge("answer", END)
    return graph.compile()


async def run_errand(task: Task, base_url: str, api_key: str) -> dict[str, Any]:
    """Play one task; the outcome is what each agent said."""
    graph = build_team(task.payload["notes"], base_url, api_key)
    asked = {"messages": [HumanMessage(message.text) for message in task.prompt], "found": []}
    state = await graph.ainvoke(asked)
    return {
        "plan": read_words(state["messages"][1].text),
        "found": sorted(state["found"], key=lambda each: each["place"]),
        "answer": read_words(state["messages"][-1].text) if state["found"] else [],
    }


def score_team(task: Task, outcome: dict[str, Any]) -> float:
    """Return 1 for the right codes: one reward for everything that was said."""
    return float(outcome["answer"] == task.payload["answer"].split())


def score_roles(task: Task, outcome: dict[str, Any]) -> dict[str, Reward]:
    """Return a reward for each role. The planner's is 1 if it chose the right notes and repeats what was found; the
    workers' is the share of them that found the code of the note that they were sent to."""
    found, codes = outcome["found"], task.payload["codes"]
    repeats = outcome["answer"] == describe_found([each["code"] for each in found]).split()[1:]
    own = {
        "planner": float(outcome["plan"] == task.payload["wanted"] and repeats),
        "worker": sum(each["code"] == codes.get(each["name"]) for each in found) / max(1, len(found)),
    }
    success = RewardPart(name="success", value=score_team(task, outcome))
    return {role: Scored(total=total, parts=(success,)) for role, total in own.items()}
