"""A ReAct agent written with LangGraph and langchain-openai: reads notes with a tool until it knows the code.

It is an ordinary graph; that its model is being trained shows nowhere. `recipes/agents/langgraph.toml` trains it.
"""

from __future__ import annotations

from typing import Any

from langchain_core.messages import HumanMessage
from langchain_openai import ChatOpenAI
from langgraph.errors import GraphRecursionError
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from turnwise.core.types import Task

MAX_REPLIES = 4


def build_graph(notes: dict[str, str], base_url: str, api_key: str) -> Any:
    """Build a graph of a model and its tools, which calls the model until it answers without a call."""

    def search(query: str) -> str:
        """Read a note."""
        return notes.get(query.strip(), "nothing")

    model = ChatOpenAI(model="policy", base_url=base_url, api_key=api_key).bind_tools([search])

    async def ask(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("ask", ask)
    graph.add_node("tools", ToolNode([search]))
    graph.add_edge(START, "ask")
    graph.add_conditional_edges("ask", tools_condition)
    graph.add_edge("tools", "ask")
    return graph.compile()


async def read_notes(task: Task, base_url: str, api_key: str) -> float:
    """Play one task; the outcome is 1.0 for the right code and 0.0 for anything else."""
    graph = build_graph(task.payload["notes"], base_url, api_key)
    asked = {"messages": [HumanMessage(message.text) for message in task.prompt]}
    try:
        state = await graph.ainvoke(asked, {"recursion_limit": 2 * MAX_REPLIES})
    except GraphRecursionError:
        return 0.0
    return float(state["messages"][-1].text.split() == ["<answer>", task.payload["answer"], "</answer>"])
