"""Ask a gateway the same question with every client of a group: `python clients/drive.py URL GROUP [CLIENT ...]`.

Runs in the group's own environment, without Turnwise. Every client gets a session of its own and plays its ordinary
tool loop; a line of JSON on standard output names the client, its session, the package's version and what came out.
"""

from __future__ import annotations

import asyncio
import json
import sys
import traceback
import urllib.request
from importlib.metadata import version

QUESTION = "What is 17 + 18 ?"
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
FUNCTION = {"name": "add", "description": "Adds.", "parameters": SCHEMA}
CUSTOM = {"name": "add", "description": "Adds.", "input_schema": SCHEMA}
MAX_STEPS = 5


def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: one
        b: the other
    """
    return a + b


def answer(arguments: str) -> str:
    """Return a call's result."""
    return str(add(**json.loads(arguments)))


def openai_chat(base, key, stream=False):
    import openai

    client = openai.OpenAI(base_url=f"{base}/v1", api_key=key)
    messages = [{"role": "user", "content": QUESTION}]
    asked = {"model": "policy", "messages": messages, "tools": [{"type": "function", "function": FUNCTION}]}
    for _ in range(MAX_STEPS):
        if stream:
            with client.chat.completions.stream(**asked) as events:
                message = [*events] and events.get_final_completion().choices[0].message
        else:
            message = client.chat.completions.create(**asked).choices[0].message
        if not message.tool_calls:
            return message.content
        messages.append(message)
        for call in message.tool_calls:
            messages.append({"role": "tool", "tool_call_id": call.id, "content": answer(call.function.arguments)})


def openai_responses(base, key, stateful=False, stream=False):
    import openai

    client = openai.OpenAI(base_url=f"{base}/v1", api_key=key)
    items, more = [{"role": "user", "content": QUESTION}], {}
    for _ in range(MAX_STEPS):
        asked = {"model": "policy", "input": items, "tools": [{"type": "function", **FUNCTION}], **more}
        if stream:
            with client.responses.stream(**asked) as events:
                reply = [*events] and events.get_final_response()
        else:
            reply = client.responses.create(**asked)
        calls = [item for item in reply.output if item.type == "function_call"]
        if not calls and stateful:  # what is stored is read and deleted by its id
            stored = client.responses.retrieve(reply.id).output_text
            client.responses.delete(reply.id)
            return stored
        if not calls:
            return reply.output_text
        outputs = [
            {"type": "function_call_output", "call_id": call.call_id, "output": answer(call.arguments)}
            for call in calls
        ]
        items = outputs if stateful else [*items, *reply.output, *outputs]
        more = {"previous_response_id": reply.id} if stateful else {}


def anthropic_messages(base, key, stream=False):
    import anthropic

    client = anthropic.Anthropic(base_url=base, api_key=key)
    messages = [{"role": "user", "content": QUESTION}]
    asked = {"model": "policy", "max_tokens": 99, "messages": messages, "tools": [CUSTOM], "system": "Be brief."}
    for _ in range(MAX_STEPS):
        if stream:
            with client.messages.stream(**asked) as events:
                reply = [*events] and events.get_final_message()
        else:
            reply = client.messages.create(**asked)
        if reply.stop_reason != "tool_use":
            return reply.content[-1].text
        results = [
            {"type": "tool_result", "tool_use_id": block.id, "content": str(add(**block.input))}
            for block in reply.content
            if block.type == "tool_use"
        ]
        messages += [{"role": "assistant", "content": reply.content}, {"role": "user", "content": results}]


def anthropic_runner(base, key):
    import anthropic

    def add(a: int, b: int) -> str:
        """Add two numbers."""
        return str(a + b)

    client = anthropic.Anthropic(base_url=base, api_key=key)
    runner = client.beta.messages.tool_runner(
        model="policy",
        max_tokens=99,
        messages=[{"role": "user", "content": QUESTION}],
        tools=[anthropic.beta_tool(add)],
    )
    return runner.until_done().content[-1].text


def langgraph_agent(base, key, is_prebuilt=False, **options):
    from langchain.agents import create_agent
    from langchain_openai import ChatOpenAI
    from langgraph.prebuilt import create_react_agent

    model = ChatOpenAI(model="policy", base_url=f"{base}/v1", api_key=key, **options)
    agent = (create_react_agent if is_prebuilt else create_agent)(model, tools=[add])
    return agent.invoke({"messages": [("user", QUESTION)]})["messages"][-1].content


def agents_sdk(base, key, model="OpenAIResponsesModel"):
    import agents
    import openai

    agents.set_tracing_disabled(True)
    client = openai.AsyncOpenAI(base_url=f"{base}/v1", api_key=key)
    policy = getattr(agents, model)(model="policy", openai_client=client)
    agent = agents.Agent(name="adder", instructions="Be brief.", tools=[agents.function_tool(add)], model=policy)
    return agents.Runner.run_sync(agent, QUESTION).final_output


def pydantic_ai(base, key, kind="chat"):
    from pydantic_ai import Agent
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.providers.anthropic import AnthropicProvider
    from pydantic_ai.providers.openai import OpenAIProvider

    if kind == "messages":
        model = AnthropicModel("policy", provider=AnthropicProvider(api_key=key, base_url=base))
    else:
        provider = OpenAIProvider(base_url=f"{base}/v1", api_key=key)
        model = (OpenAIChatModel if kind == "chat" else OpenAIResponsesModel)("policy", provider=provider)
    return Agent(model, tools=[add]).run_sync(QUESTION).output


def smolagents_agent(base, key, kind="ToolCallingAgent"):
    import smolagents

    model = smolagents.OpenAIServerModel(model_id="policy", api_base=f"{base}/v1", api_key=key)
    agent = getattr(smolagents, kind)(tools=[smolagents.tool(add)], model=model, max_steps=4, verbosity_level=0)
    return str(agent.run(QUESTION))


def litellm_loop(base, key, provider="openai"):
    import litellm

    litellm.suppress_debug_info = True
    messages = [{"role": "user", "content": QUESTION}]
    place = base if provider == "anthropic" else f"{base}/v1"
    for _ in range(MAX_STEPS):
        reply = litellm.completion(
            model=f"{provider}/policy",
            api_base=place,
            api_key=key,
            messages=messages,
            tools=[{"type": "function", "function": FUNCTION}],
        )
        message = reply.choices[0].message
        if not message.tool_calls:
            return message.content
        messages.append(message.model_dump())
        for call in message.tool_calls:
            messages.append({"role": "tool", "tool_call_id": call.id, "content": answer(call.function.arguments)})


def mini_swe_agent(base, key, module="litellm_model", name="LitellmModel"):
    from importlib import import_module

    import litellm
    from minisweagent.agents.default import DefaultAgent
    from minisweagent.environments.local import LocalEnvironment

    litellm.suppress_debug_info = True
    model = getattr(import_module(f"minisweagent.models.{module}"), name)(
        model_name="openai/policy",
        model_kwargs={"api_base": f"{base}/v1", "api_key": key},
        cost_tracking="ignore_errors",
    )
    form = "Write ```mswea_bash_command" if "text" in module else "Call bash"
    agent = DefaultAgent(
        model,
        LocalEnvironment(timeout=20),
        system_template=f"You work in a shell. {form}.",
        instance_template="{{task}}",
        step_limit=MAX_STEPS,
    )
    return str(agent.run(QUESTION))


def autogen_agent(base, key, reflects=False):
    from autogen_agentchat.agents import AssistantAgent
    from autogen_ext.models.openai import OpenAIChatCompletionClient

    info = {"vision": False, "function_calling": True, "json_output": False, "family": "unknown"}
    info["structured_output"] = False
    client = OpenAIChatCompletionClient(model="policy", base_url=f"{base}/v1", api_key=key, model_info=info)
    agent = AssistantAgent(
        "adder", client, tools=[add], reflect_on_tool_use=reflects, max_tool_iterations=1 if reflects else 3
    )
    return asyncio.run(agent.run(task=QUESTION)).messages[-1].content


def strands_agent(base, key, kind="openai"):
    import strands

    if kind == "openai":
        from strands.models.openai import OpenAIModel

        model = OpenAIModel(client_args={"base_url": f"{base}/v1", "api_key": key}, model_id="policy")
    else:
        from strands.models.anthropic import AnthropicModel

        model = AnthropicModel(client_args={"base_url": base, "api_key": key}, model_id="policy", max_tokens=99)
    return str(strands.Agent(model=model, tools=[strands.tool(add)], callback_handler=None)(QUESTION))


GROUPS = {
    "main": {
        "openai: chat": ("openai", openai_chat, {}),
        "openai: chat, stream": ("openai", openai_chat, {"stream": True}),
        "openai: responses, items": ("openai", openai_responses, {}),
        "openai: responses, items, stream": ("openai", openai_responses, {"stream": True}),
        "openai: responses, previous_response_id": ("openai", openai_responses, {"stateful": True}),
        "anthropic: messages": ("anthropic", anthropic_messages, {}),
        "anthropic: messages, stream": ("anthropic", anthropic_messages, {"stream": True}),
        "anthropic: tool runner": ("anthropic", anthropic_runner, {}),
        "LangGraph: create_agent": ("langgraph", langgraph_agent, {}),
        "LangGraph: create_agent, stream": ("langgraph", langgraph_agent, {"streaming": True}),
        "LangGraph: create_agent, responses": ("langgraph", langgraph_agent, {"use_responses_api": True}),
        "LangGraph: create_react_agent": ("langgraph", langgraph_agent, {"is_prebuilt": True}),
        "OpenAI Agents SDK: responses": ("openai-agents", agents_sdk, {}),
        "OpenAI Agents SDK: chat": ("openai-agents", agents_sdk, {"model": "OpenAIChatCompletionsModel"}),
        "pydantic-ai: chat": ("pydantic-ai-slim", pydantic_ai, {}),
        "pydantic-ai: responses": ("pydantic-ai-slim", pydantic_ai, {"kind": "responses"}),
        "pydantic-ai: messages": ("pydantic-ai-slim", pydantic_ai, {"kind": "messages"}),
        "smolagents: ToolCallingAgent": ("smolagents", smolagents_agent, {}),
        "smolagents: CodeAgent": ("smolagents", smolagents_agent, {"kind": "CodeAgent"}),
    },
    "litellm": {
        "litellm: openai/": ("litellm", litellm_loop, {}),
        "litellm: hosted_vllm/": ("litellm", litellm_loop, {"provider": "hosted_vllm"}),
        "litellm: anthropic/": ("litellm", litellm_loop, {"provider": "anthropic"}),
        "mini-swe-agent: tools": ("mini-swe-agent", mini_swe_agent, {}),
        "mini-swe-agent: text": (
            "mini-swe-agent",
            mini_swe_agent,
            {"module": "litellm_textbased_model", "name": "LitellmTextbasedModel"},
        ),
        "mini-swe-agent: responses": (
            "mini-swe-agent",
            mini_swe_agent,
            {"module": "litellm_response_model", "name": "LitellmResponseModel"},
        ),
    },
    "autogen": {
        "autogen: AssistantAgent": ("autogen-agentchat", autogen_agent, {}),
        "autogen: AssistantAgent, reflecting": ("autogen-agentchat", autogen_agent, {"reflects": True}),
    },
    "strands": {
        "strands: openai": ("strands-agents", strands_agent, {}),
        "strands: anthropic": ("strands-agents", strands_agent, {"kind": "anthropic"}),
    },
}


def open_session(url: str) -> dict[str, str]:
    """Open a session of the gateway."""
    request = urllib.request.Request(f"{url}/sessions", data=b"{}", method="POST")
    with urllib.request.urlopen(request) as opened:
        return json.load(opened)


def main() -> None:
    """Drive the group's clients, one after another."""
    url, group, *names = sys.argv[1:]
    for name, (package, play, options) in GROUPS[group].items():
        if names and name not in names:
            continue
        session = open_session(url)
        told = {"client": name, "session": session["name"]}
        try:
            told |= {"package": package, "version": version(package)}
            told["answer"] = str(play(url + session["path"], session["key"], **options))
        except Exception as error:  # noqa: BLE001 - a client's failure is a row of the table
            told["error"] = f"{type(error).__name__}: {str(error)[:300]}"
            if names:
                traceback.print_exc()
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
