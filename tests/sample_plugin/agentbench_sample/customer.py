"""Driver: a second model plays a customer, who talks to the agent until the goal is reached.

    customer: {goal: You want your money back for order 1042., most_turns: 5}

The run profile names the model: `roles: {customer: gpt4o-mini}`.
"""

from __future__ import annotations

from pytest_agentbench import Case, CasePart, Conversation, ProviderError, RunContext, RunOutput

DONE = "DONE"
RULES = f"You are a customer. Write only your next message. Once your goal is reached, write {DONE} alone."


class Customer(CasePart):
    """What the customer wants."""

    is_section = True

    goal: str
    """Told to the customer's model only."""
    most_turns: int = 8
    """Turns after which the customer gives up."""


class CustomerDriver:
    """Says the case's last message, and then what the customer's model writes."""

    model_roles = ("customer",)

    async def __call__(self, conversation: Conversation, case: Case, context: RunContext) -> RunOutput | None:
        """Hold the conversation. Return None: the agent's last answer is the run's."""
        part = case.part(Customer)
        assert part is not None, "a driver is called for the cases with the part of its name"
        customer, message = context.client_for("customer"), case.messages[-1].content
        talk = [{"role": "system", "content": f"{RULES} {part.goal}"}]
        for _ in range(part.most_turns):
            turn = await conversation.say(message)
            # To its model, the customer's own messages are the assistant's
            talk += [{"role": "assistant", "content": message}, {"role": "user", "content": turn.text}]
            message = (await customer.complete(talk)).content or ""
            if not message:
                raise ProviderError("the customer's model wrote no message", code="empty_reply")
            if message.strip() == DONE:
                break
        return None


DRIVER = CustomerDriver()
