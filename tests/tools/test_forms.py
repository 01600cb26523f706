"""A tool is made of a function, a method or a class, under any name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from orchestrator import Retry, Tool, Toolbox, ToolResult, tool
from orchestrator.errors import AgentError

pytestmark = pytest.mark.anyio


# -- functions -----------------------------------------------------------------------------------------------------


@tool
def bare(a: int) -> int:
    """Bare."""
    return a + 1


@tool(name="other", description="Said otherwise.", risk="read", effect="read", timeout=5, ends=True, group="g")
async def full(a: int) -> int:
    """Full."""
    return a + 1


async def test_with_and_without_options_sync_and_async() -> None:
    assert [await bare(a=1), await full(a=1), await bare(1)] == [2, 2, 2]
    assert (bare.name, bare.description) == ("bare", "Bare.")
    assert (full.name, full.description, full.risk, full.effect) == ("other", "Said otherwise.", "read", "read")
    assert (full.timeout, full.ends, full.group) == (5, True, "g")


async def test_an_object_that_can_be_called_is_a_function_too() -> None:
    class Adder:
        def __init__(self, base: int) -> None:
            self.base = base

        async def __call__(self, a: int) -> int:
            """Add to the base."""
            return self.base + a

    one = tool(Adder(10), name="adder")  # type: ignore[call-overload]
    assert (one.name, await one(a=1)) == ("adder", 11)
    assert one.parameters["properties"] == {"a": {"type": "integer"}}
    assert one.description == "Add to the base."


async def test_a_tool_called_as_a_function_raises_and_returns_what_the_function_does() -> None:
    class Thing:
        pass

    thing = Thing()

    @tool
    def give() -> object:
        """Give."""
        return thing

    @tool
    def fail() -> None:
        """Fail."""
        raise KeyError("x")

    assert await give() is thing
    with pytest.raises(KeyError):
        await fail()


async def test_by_position_and_by_name() -> None:
    @tool
    def pair(a: int, b: int = 2, /, c: int = 3) -> list[int]:
        """Pair."""
        return [a, b, c]

    assert await pair(1) == [1, 2, 3]
    assert await pair("7", 8, 9) == [7, 8, 9]
    assert await pair(a=1, b=5, c=6) == [1, 5, 6]  # as a model does
    with pytest.raises(AgentError, match="takes at most 3 positional arguments, but 4 were given"):
        await pair(1, 2, 3, 4)
    with pytest.raises(AgentError, match="'a' is given twice, by position and by name"):
        await pair(1, a=1)
    with pytest.raises(AgentError, match="'a' is missing"):
        await pair()


# -- methods -------------------------------------------------------------------------------------------------------


class Agent:
    def __init__(self, name: str) -> None:
        self.name = name

    @tool(risk="read")
    def greet(self, whom: str) -> str:
        """Greet somebody.

        Args:
            whom: who it is.
        """
        return f"{self.name} greets {whom}"

    @tool
    async def later(self, whom: str) -> str:
        """Greet later."""
        return await self.greet(whom=whom)  # type: ignore[no-any-return]

    @tool
    @classmethod
    def kind(cls, loud: bool = False) -> str:
        """Name the class."""
        return cls.__name__.upper() if loud else cls.__name__

    @tool
    @staticmethod
    def twice(a: int) -> int:
        """Double."""
        return 2 * a


class Loud(Agent):
    pass


def test_a_method_without_its_instance_is_refused_where_tools_are_given() -> None:
    class Desk:
        def ask(self, question: str) -> str:
            """Ask."""
            return question

        @tool
        def told(self, question: str) -> str:
            """Tell."""
            return question

    for method in (Desk.ask, tool(Desk.ask), Desk.told):
        with pytest.raises(TypeError, match=r"is a method: take it from an instance, Desk\(...\)\.(ask|told)$"):
            Toolbox(method)
    assert [one.name for one in Toolbox(Desk().ask, Desk().told)] == ["ask", "told"]


async def test_a_method_reaches_its_instance_which_is_no_part_of_the_schema() -> None:
    ann, bob = Agent("Ann"), Agent("Bob")
    assert list(ann.greet.parameters["properties"]) == ["whom"]  # type: ignore[call-overload]
    assert [await one.greet(whom="Eve") for one in (ann, bob, ann)] == [
        "Ann greets Eve", "Bob greets Eve", "Ann greets Eve",
    ]  # fmt: skip
    assert await ann.later(whom="Eve") == "Ann greets Eve"
    assert (await Toolbox(ann.greet).execute(name="greet", tool_input={"whom": "Eve"})).output == "Ann greets Eve"
    assert (ann.greet.risk, ann.greet.name) == ("read", "greet")


async def test_class_and_static_methods() -> None:
    assert await Agent.kind() == "Agent"
    assert await Loud("x").kind(loud=True) == "LOUD"
    assert [await Agent.twice(a=2), await Loud("x").twice(a=2)] == [4, 4]
    assert list(Agent.twice.parameters["properties"]) == ["a"]  # type: ignore[call-overload]


async def test_a_method_is_bound_also_when_it_is_renamed() -> None:
    one = tool(Agent("Ann").greet, name="hello")
    assert (one.name, await one(whom="Eve")) == ("hello", "Ann greets Eve")
    assert await tool(Agent("Bob").greet.function.__get__(Agent("Bob")), name="hi")(whom="Eve") == "Bob greets Eve"  # type: ignore[attr-defined]


async def test_a_method_without_its_instance_says_so() -> None:
    with pytest.raises(TypeError, match="tool 'greet' is a method: take it from an instance"):
        await Agent.greet(whom="Eve")
    assert Agent.greet.description == "Greet somebody."  # what it is can be told


# -- classes -------------------------------------------------------------------------------------------------------


class AdditionTool(Tool):
    """Adds."""

    def __init__(self, base: int = 0) -> None:
        self.base = base

    def call(self, a, b: int = 1):  # type: ignore[no-untyped-def]
        """Add two numbers to a base.

        Args:
            a (int): the first.
            b: the second.
        """
        return self.base + a + b


class Shout(Tool):
    """Shouts a text."""

    name = "shout"
    description = "Make it loud."
    parameters = {  # noqa: RUF012  a schema, as other systems write it
        "type": "object",
        "properties": {"text": {"type": "string"}},
        "required": ["text"],
    }
    risk = "none"
    effect = "pure"

    async def execute(self, **args: Any) -> ToolResult:
        return ToolResult(output=args["text"].upper(), metadata={"loud": True})


async def test_a_class_has_data_of_its_own_and_names_itself() -> None:
    one = AdditionTool(100)
    assert one.to_param()["function"]["name"] == "AdditionTool"
    assert one.description == "Add two numbers to a base."
    assert one.parameters == {
        "type": "object",
        "properties": {
            "a": {"type": "integer", "description": "the first."},
            "b": {"type": "integer", "description": "the second.", "default": 1},
        },
        "required": ["a"],
        "additionalProperties": False,
    }
    assert [await one(1), await one(a=1, b=2), await AdditionTool()(1)] == [102, 103, 2]


async def test_a_class_may_say_its_schema() -> None:
    one = Shout()
    assert one.to_param() == {
        "type": "function",
        "function": {"name": "shout", "description": "Make it loud.", "parameters": Shout.parameters},
    }
    assert (await one.invoke({"text": "hey"})) == ToolResult(output="HEY", metadata={"loud": True})
    assert (await one("hey")).output == "HEY"


def test_the_class_documents_what_its_body_does_not() -> None:
    class Quiet(Tool):
        """Says nothing."""

        def call(self) -> None:
            pass

    class Child(Quiet):
        pass

    assert Quiet().description == "Says nothing."
    assert Child().description == ""  # what is said of the parent need not hold


async def test_a_class_of_a_class_has_its_own_schema() -> None:
    class Triple(AdditionTool):
        def call(self, a: float, b: float, c: float = 0) -> float:
            """Add three."""
            return a + b + c

    AdditionTool().parameters  # noqa: B018  made first, it must not be inherited
    assert list(Triple().parameters["properties"]) == ["a", "b", "c"]  # type: ignore[call-overload]
    assert Triple().description == "Add three."


@pytest.mark.parametrize(
    ("attributes", "words"), [({"risk": "huge"}, "risk"), ({"effect": "x"}, "effect"), ({"timeout": -1}, "timeout")]
)
def test_a_class_with_wrong_attributes_is_refused_when_it_is_defined(attributes: dict[str, Any], words: str) -> None:
    with pytest.raises(TypeError, match=words):
        type("Wrong", (Tool,), {**attributes, "call": lambda self: None})


async def test_a_class_that_does_nothing_says_so() -> None:
    class Nothing(Tool):
        pass

    with pytest.raises(TypeError, match=r"tool class Nothing does nothing: define call\(self, ...\) or execute"):
        await Nothing()()
    with pytest.raises(TypeError, match="tool class Nothing does nothing"):
        Toolbox(Nothing())


# -- names ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rename", [lambda one: tool(one, name="plus"), lambda one: one.with_(name="plus")])
async def test_a_renamed_tool_is_another_one(rename: Callable[[Tool], Tool]) -> None:
    plus = rename(bare)
    assert (plus.name, bare.name) == ("plus", "bare")
    assert (await plus(a=1), plus.description, plus.parameters) == (2, "Bare.", bare.parameters)
    assert [one.name for one in Toolbox(bare, plus)] == ["bare", "plus"]
    assert tool(name="again", risk="none")(plus).risk == "none"
    assert plus.risk == "dangerous"


def test_a_function_can_be_registered_under_another_name() -> None:
    def original(a: int) -> int:
        """Do."""
        return a

    assert tool(original, "new_name").name == "new_name"


def test_a_copy_has_only_known_attributes() -> None:
    assert bare.with_(retry=Retry(), timeout=3).timeout == 3
    with pytest.raises(TypeError, match="tool 'bare' has no 'color' to change; it has description, "):
        bare.with_(color="red")


def test_how_it_shows_itself() -> None:
    assert repr(full) == "<Tool other risk=read effect=read>"
