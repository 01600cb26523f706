"""Docstrings as people write them: the text, and what they say of each parameter."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator import tool
from orchestrator.tools.docstrings import Documented, ParameterDoc, read_docstring

CASES: dict[str, tuple[str, str, dict[str, tuple[str, str]]]] = {
    "names that are not ASCII": (
        "Get the text.\n\nArgs:\n    größe (int): the size\n    名前: the name",
        "Get the text.",
        {"größe": ("the size", "int"), "名前": ("the name", "")},
    ),
    "NumPy, names that are not ASCII": (
        "Get the text.\n\nParameters\n----------\ngröße : int\n    the size",
        "Get the text.",
        {"größe": ("the size", "int")},
    ),
    "Sphinx, names that are not ASCII": (
        "Get the text.\n\n:param größe: the size",
        "Get the text.",
        {"größe": ("the size", "")},
    ),
    "google": (
        "Get the text.\n\nArgs:\n    book: the title\n    ref: the place",
        "Get the text.",
        {"book": ("the title", ""), "ref": ("the place", "")},
    ),
    "google no blank": (
        "Get the text.\nArgs:\n    book: the title\n    ref: the place",
        "Get the text.",
        {"book": ("the title", ""), "ref": ("the place", "")},
    ),
    "google no summary": (
        "\nArgs:\n    book: the title\n    ref: the place\n",
        "",
        {"book": ("the title", ""), "ref": ("the place", "")},
    ),
    "google no summary same line": (
        "Args:\n        book: the title\n        ref: the place\n",
        "",
        {"book": ("the title", ""), "ref": ("the place", "")},
    ),
    "google types": (
        'Get the text.\n\nArgs:\n    book (str): the title\n    ref (str, optional): the place. Defaults to "".',
        "Get the text.",
        {"book": ("the title", "str"), "ref": ('the place. Defaults to "".', "str, optional")},
    ),
    "google space colon": (
        'Get the text.\n\nArgs:\n    book (str) : title of the book\n    ref (str) : the place, such as "3:5"',
        "Get the text.",
        {"book": ("title of the book", "str"), "ref": ('the place, such as "3:5"', "str")},
    ),
    "google space colon untyped": (
        "Get the text.\n\nArgs:\n    book : title of the book\n    ref : the place",
        "Get the text.",
        {"book": ("title of the book", ""), "ref": ("the place", "")},
    ),
    "google no space before paren": (
        "Get the text.\n\nArgs:\n    book(str): title\n    ref(str): place",
        "Get the text.",
        {"book": ("title", "str"), "ref": ("place", "str")},
    ),
    "google colon in text": (
        "Get the text.\n\nArgs:\n    ref: the place, e.g. 3:5\n    url: such as http://x",
        "Get the text.",
        {"ref": ("the place, e.g. 3:5", ""), "url": ("such as http://x", "")},
    ),
    "google continued": (
        "Get the text.\n\nArgs:\n    book: the title\n        of it\n    ref: place",
        "Get the text.",
        {"book": ("the title of it", ""), "ref": ("place", "")},
    ),
    "google continued same indent": (
        "Get the text.\n\nArgs:\n    book: the title\n    of it all\n    ref: place",
        "Get the text.",
        {"book": ("the title of it all", ""), "ref": ("place", "")},
    ),
    "google next line": (
        "Get the text.\n\nArgs:\n    book:\n        the title\n    ref (str):\n        place",
        "Get the text.",
        {"book": ("the title", ""), "ref": ("place", "str")},
    ),
    "google two indent": (
        "Get the text.\n\nArgs:\n  book: the title\n  ref: place",
        "Get the text.",
        {"book": ("the title", ""), "ref": ("place", "")},
    ),
    "google tab": (
        "Get the text.\n\n\tArgs:\n\t\tbook: the title\n\t\tref: place",
        "Get the text.",
        {"book": ("the title", ""), "ref": ("place", "")},
    ),
    "google stars": (
        "Get the text.\n\nArgs:\n    *args: more\n    **kwargs: further",
        "Get the text.",
        {"args": ("more", ""), "kwargs": ("further", "")},
    ),
    "google bullets": (
        "Get the text.\n\nArgs:\n    - book: the title\n    - ref (str): place",
        "Get the text.",
        {"book": ("the title", ""), "ref": ("place", "str")},
    ),
    "google bullets star": (
        "Get the text.\n\nArgs:\n    * book: the title\n    * ref: place",
        "Get the text.",
        {"book": ("the title", ""), "ref": ("place", "")},
    ),
    "google backticks": (
        "Get the text.\n\nArgs:\n    `book`: the title\n    `ref` (str): place",
        "Get the text.",
        {"book": ("the title", ""), "ref": ("place", "str")},
    ),
    "google backticks type (HF)": (
        'Get the text.\n\nArgs:\n    book (`str`): the title\n    ref (`str`, *optional*, defaults to `""`): place',
        "Get the text.",
        {"book": ("the title", "`str`"), "ref": ("place", '`str`, *optional*, defaults to `""`')},
    ),
    "google dash": (
        "Get the text.\n\nArgs:\n    book - the title\n    ref - place",
        "Get the text.",
        {"book": ("the title", ""), "ref": ("place", "")},
    ),
    "google typed dash": (
        "Get the text.\n\nArgs:\n    book (str) - the title\n    ref (str) -- place",
        "Get the text.",
        {"book": ("the title", "str"), "ref": ("place", "str")},
    ),
    "google not indented": (
        "Get the text.\n\nArgs:\nbook: the title\nref: place",
        "Get the text.",
        {"book": ("the title", ""), "ref": ("place", "")},
    ),
    "google no summary not indented": (
        "Args:\nquery: the query\nlimit: max",
        "",
        {"query": ("the query", ""), "limit": ("max", "")},
    ),
    "google returns": (
        "Get the text.\n\nArgs:\n    book: the title\n\nReturns:\n    str: the text\n\nRaises:\n    ValueError: none",
        "Get the text.",
        {"book": ("the title", "")},
    ),
    "google returns first": (
        "Get the text.\n\nReturns:\n    the text\n\nArgs:\n    book: the title",
        "Get the text.",
        {"book": ("the title", "")},
    ),
    "google returns tight": (
        "Get the text.\n\nArgs:\n    book: the title\nReturns:\n    str: the text",
        "Get the text.",
        {"book": ("the title", "")},
    ),
    "google returns inline": (
        "Get the text.\n\nArgs:\n    book: the title\n\nReturns: the text",
        "Get the text.\n\nReturns: the text",
        {"book": ("the title", "")},
    ),
    "google Arguments": (
        "Get the text.\n\nArguments:\n    book: the title",
        "Get the text.",
        {"book": ("the title", "")},
    ),
    "google Parameters": (
        "Get the text.\n\nParameters:\n    book: the title",
        "Get the text.",
        {"book": ("the title", "")},
    ),
    "google Params": (
        "Get the text.\n\nParams:\n    book: the title",
        "Get the text.",
        {"book": ("the title", "")},
    ),
    "google Inputs": (
        "Get the text.\n\nInputs:\n    book: the title",
        "Get the text.",
        {"book": ("the title", "")},
    ),
    "google Keyword Args": (
        "Get the text.\n\nKeyword Args:\n    book: the title",
        "Get the text.",
        {"book": ("the title", "")},
    ),
    "google lower": (
        "Get the text.\n\nargs:\n    book: the title",
        "Get the text.",
        {"book": ("the title", "")},
    ),
    "google upper": (
        "Get the text.\n\nARGS:\n    book: the title",
        "Get the text.",
        {"book": ("the title", "")},
    ),
    "google markdown": (
        "Get the text.\n\n**Args:**\n    book: the title",
        "Get the text.",
        {"book": ("the title", "")},
    ),
    "google empty line between": (
        "Get the text.\n\nArgs:\n    book: the title\n\n    ref: place",
        "Get the text.",
        {"book": ("the title", ""), "ref": ("place", "")},
    ),
    "google blank after Args": (
        "Get the text.\n\nArgs:\n\n    book: the title\n    ref: place",
        "Get the text.",
        {"book": ("the title", ""), "ref": ("place", "")},
    ),
    "google same line summary example": (
        "Get the text.\n\nExample:\n    get(1)\n\nArgs:\n    book: the title",
        "Get the text.\n\nExample:\n    get(1)",
        {"book": ("the title", "")},
    ),
    "google note": (
        "Get the text.\n\nNote:\n    Only old ones.\n\nArgs:\n    book: the title",
        "Get the text.\n\nNote:\n    Only old ones.",
        {"book": ("the title", "")},
    ),
    "google after": (
        "Get the text.\n\nArgs:\n    book: the title\n\nOnly old ones.",
        "Get the text.\n\nOnly old ones.",
        {"book": ("the title", "")},
    ),
    "google union": (
        "Get the text.\n\nArgs:\n    book (str | None): the title\n    n (dict[str, int]): counts",
        "Get the text.",
        {"book": ("the title", "str | None"), "n": ("counts", "dict[str, int]")},
    ),
    "google nested parens": (
        "Get the text.\n\nArgs:\n    f (Callable[[int], (str)]): fn\n    b (tuple(int, int)): pair",
        "Get the text.",
        {"f": ("fn", "Callable[[int], (str)]"), "b": ("pair", "tuple(int, int)")},
    ),
    "numpy": (
        "Get the text.\n\nParameters\n----------\nbook : str\n    the title\nref : str, optional\n    place",
        "Get the text.",
        {"book": ("the title", "str"), "ref": ("place", "str, optional")},
    ),
    "numpy tight": (
        "Get the text.\nParameters\n----------\nbook : str\n    the title",
        "Get the text.",
        {"book": ("the title", "str")},
    ),
    "numpy no summary": (
        "Parameters\n----------\nbook : str\n    the title\nref : str\n    place",
        "",
        {"book": ("the title", "str"), "ref": ("place", "str")},
    ),
    "numpy no types": (
        "Get the text.\n\nParameters\n----------\nbook\n    the title\nref\n    place",
        "Get the text.",
        {"book": ("the title", ""), "ref": ("place", "")},
    ),
    "numpy colon": (
        "Get the text.\n\nParameters\n----------\nbook: str\n    the title",
        "Get the text.",
        {"book": ("the title", "str")},
    ),
    "numpy two": (
        "Get the text.\n\nParameters\n----------\na, b : int\n    numbers",
        "Get the text.",
        {"a": ("numbers", "int"), "b": ("numbers", "int")},
    ),
    "numpy returns": (
        "Get the text.\n\nParameters\n----------\nbook : str\n    the title\n\nReturns\n-------\nstr\n    text",
        "Get the text.",
        {"book": ("the title", "str")},
    ),
    "numpy short underline": (
        "Get the text.\n\nParameters\n---\nbook : str\n    the title",
        "Get the text.",
        {"book": ("the title", "str")},
    ),
    "numpy equals": (
        "Get the text.\n\nParameters\n==========\nbook : str\n    the title",
        "Get the text.",
        {"book": ("the title", "str")},
    ),
    "numpy one line": (
        "Get the text.\n\nParameters\n----------\nbook : str, the title\nref : str, place",
        "Get the text.",
        {"book": ("str, the title", ""), "ref": ("str, place", "")},
    ),
    "sphinx": (
        "Get the text.\n\n:param book: the title\n:param ref: place\n:return: text",
        "Get the text.",
        {"book": ("the title", ""), "ref": ("place", "")},
    ),
    "sphinx tight": (
        "Get the text.\n:param book: the title\n:param ref: place",
        "Get the text.",
        {"book": ("the title", ""), "ref": ("place", "")},
    ),
    "sphinx no summary": (
        ":param book: the title\n:param ref: place",
        "",
        {"book": ("the title", ""), "ref": ("place", "")},
    ),
    "sphinx typed": (
        "Get the text.\n\n:param str book: the title\n:param ref: place\n:type ref: str",
        "Get the text.",
        {"book": ("the title", "str"), "ref": ("place", "str")},
    ),
    "sphinx continued": (
        "Get the text.\n\n:param book: the title\n    of it\n:param ref: place",
        "Get the text.",
        {"book": ("the title of it", ""), "ref": ("place", "")},
    ),
    "sphinx space": (
        "Get the text.\n\n:param book : the title\n:param ref : place",
        "Get the text.",
        {"book": ("the title", ""), "ref": ("place", "")},
    ),
    "sphinx parameter": (
        "Get the text.\n\n:parameter book: the title\n:arg ref: place",
        "Get the text.",
        {"book": ("the title", ""), "ref": ("place", "")},
    ),
    "sphinx type first": (
        "Get the text.\n\n:type book: str\n:param book: the title",
        "Get the text.",
        {"book": ("the title", "str")},
    ),
    "epytext": (
        "Get the text.\n\n@param book: the title\n@param ref: place\n@return: text",
        "Get the text.",
        {"book": ("the title", ""), "ref": ("place", "")},
    ),
    "javadoc": (
        "Get the text.\n\n@param book the title\n@param ref the place",
        "Get the text.",
        {"book": ("the title", ""), "ref": ("the place", "")},
    ),
    "none": (
        "Get the text.",
        "Get the text.",
        {},
    ),
    "none lines": (
        "Get the text\nof it.",
        "Get the text of it.",
        {},
    ),
    "none colon": (
        "Get the text. Note: only old ones.",
        "Get the text. Note: only old ones.",
        {},
    ),
    "none list": (
        "Do one of:\n- add\n- remove",
        "Do one of:\n- add\n- remove",
        {},
    ),
    "empty": (
        "",
        "",
        {},
    ),
    "dashes in text": (
        "Get the text.\n\n--- note ---\nold ones",
        "Get the text.\n\n--- note ---\nold ones",
        {},
    ),
    "markdown headed": (
        "Get the text.\n\n## Args\n- book: the title",
        "Get the text.",
        {"book": ("the title", "")},
    ),
}
"""By name: a docstring, its text, and description and type of each parameter."""


@pytest.mark.parametrize("name", CASES)
def test_a_docstring_of_any_style_says_what_it_says(name: str) -> None:
    doc, text, parameters = CASES[name]
    expected = Documented(text, {key: ParameterDoc(*said) for key, said in parameters.items()})
    assert read_docstring(doc) == expected
    indented = "\n".join(f"        {line}" if line and number else line for number, line in enumerate(doc.split("\n")))
    if not doc.startswith(("Args", "Param", ":param", "\n")):  # else the first line is not the margin's
        assert read_docstring(indented) == expected
    assert read_docstring(f"{doc}\n") == expected


WORDS = st.sampled_from(
    [
        *"ab:-*`#@()",
        "Args:",
        "Returns:",
        "Parameters",
        "------",
        ":param a:",
        "a: b",
        "a (int): b",
        "    ",
        "\n",
        "\n\n",
    ]
)


@given(st.lists(WORDS, max_size=12).map("".join))
def test_every_text_can_be_read(text: str) -> None:
    found = read_docstring(f"Add two numbers.\n\n{text}")
    assert found.text.startswith("Add two numbers.")


def test_models_are_told_of_parameters_without_a_summary() -> None:
    @tool
    def search(query: str, limit: int = 3) -> None:
        """
        Args:
            query (str) : the search query
            limit (int, optional) : most results
        """

    assert search.description == ""
    assert search.parameters["properties"] == {
        "query": {"type": "string", "description": "the search query"},
        "limit": {"type": "integer", "description": "most results", "default": 3},
    }
