"""A ReAct agent written with LangGraph and langchain-openai: reads notes with a tool until it knows the code.

It is an ordinary graph; that its model is being trained shows nowhere. `recipes/agents/langgraph.toml` trains it.
"""

from __future__ import annotations

import ssl
from typing import Any

import httpx
from langchain_core.messages import HumanMessage
from langchain_openai import ChatOpenAI
from langgraph.errors import GraphRecursionError
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from turnwise.core.types import Task

MAX_REPLIES = 4
TLS = ssl.create_default_context()
"""Shared by all clients: reading the certificates takes longer than the rest of an episode."""


def connect(base_url: str, api_key: str) -> ChatOpenAI:
    """Return the model behind an endpoint."""
    return ChatOpenAI(
        model="policy",
        base_url=base_url,
        api_key=api_key,
        http_client=httpx.Client(verify=TLS),
        http_async_client=httpx.AsyncClient(verify=TLS),
    )


def build_graph(notes: dict[str, str], model: ChatOpenAI, name: str) -> Any:
    """Build a graph of a model, asked for by `name`, and its tools. It calls the model until it answers without a
    call."""

    def search(query: str) -> str:
        """Read a note."""
        return notes.get(query.strip(), "nothing")

    reader = model.bind_tools([search], model=name)

    async def ask(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await reader.ainvoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("ask", ask)
    graph.add_node("tools", ToolNode([search]))
    graph.add_edge(START, "ask")
    graph.add_conditional_edges("ask", tools_condition)
    graph.add_edge("tools", "ask")
    return graph.compile()


async def ask_reader(graph: Any, question: str) -> str:
    """Return the graph's answer to a question; empty if it had none after `MAX_REPLIES` replies."""
    asked = {"messages": [HumanMessage(question)]}
    try:
        state = await graph.ainvoke(asked, {"recursion_limit": 2 * MAX_REPLIES})
    except GraphRecursionError:
        return ""
    return str(state["messages"][-1].text)


async def read_notes(task: Task, base_url: str, api_key: str) -> float:
    """Play one task; the outcome is 1.0 for the right code and 0.0 for anything else."""
    graph = build_graph(task.payload["notes"], connect(base_url, api_key), "policy")
    said = await ask_reader(graph, task.prompt[0].text)
    return float(said.split() == ["<answer>", task.payload["answer"], "</answer>"])
