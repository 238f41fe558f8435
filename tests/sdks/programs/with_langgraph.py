"""Agents with LangGraph and LangChain's client of OpenAI."""

from __future__ import annotations

from typing import Any

from langchain_core.tools import StructuredTool
from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from task import Task, run


async def chat(task: Task, *, use_responses: bool = False) -> str:
    tools = [StructuredTool.from_function(task.write_file)]
    client = ChatOpenAI(
        model=task.model, streaming=task.stream, use_responses_api=use_responses, **task.where("/v1")
    ).bind_tools(tools)

    async def ask(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await client.ainvoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("ask", ask)
    graph.add_node("tools", ToolNode(tools))
    graph.add_edge(START, "ask")
    graph.add_conditional_edges("ask", tools_condition)
    graph.add_edge("tools", "ask")
    state = await graph.compile().ainvoke({"messages": [("user", task.message)]})
    return str(state["messages"][-1].text)


async def responses(task: Task) -> str:
    return await chat(task, use_responses=True)


AGENTS = {"chat": chat, "responses": responses}

if __name__ == "__main__":
    run(AGENTS)
