"""`orchestrator model try`: what a model supports, as a table, as JSON, and as what to write."""

from __future__ import annotations

from tests.models.test_probe import Odd
from tests.support.shell import Shell
from tests.support.wire import refused, served

KEY = "sk-not-a-real-key-42"


def test_a_model_is_tried_and_what_to_write_is_printed(shell: Shell) -> None:
    server = Odd({"json_schema": f"no schemas for {KEY}"}, drops=frozenset({"tools"}))
    with served(server) as wire:
        url = wire.url.replace("//", "//user:hunter2222@")
        env = {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": KEY}
        done = shell("model", "try", "openai:m", env=env)
        assert done.code == 0, done.err
        rows = {line[:19].strip(): line[19:] for line in done.out.splitlines()}
        assert rows["FEATURE"].split() == ["FOUND", "DETAIL"]
        assert rows["tools"].split()[0] == "dropped"
        assert rows["answers in a schema"].split()[0] == "json_object"
        assert "no schemas" in rows["answers in a schema"]
        *_, python, option = done.out.splitlines()
        assert python == f"python:  TextProtocol(OpenAIModel('m', '{wire.url}', profile=Profile(output='json_object')))"
        assert option == "option:  --model 'openai:m?output=json_object&protocol=json'"
        whole = shell("model", "try", "openai:m", "--json", env=env)
        found = whole.json
        assert (found["model"], found["changes"], found["text_tools"]) == ("m", {"output": "json_object"}, True)
        assert (found["features"]["stop"]["found"], found["profile"]["output"]) == ("yes", "json_object")
        for text in (done.out, done.err, whole.out, whole.err):
            assert KEY not in text
            assert "hunter2222" not in text
        again = shell("model", "try", found["option"].split("'")[1], env=env)
        assert again.out.splitlines()[-1] == option


def test_a_model_of_a_file_is_tried_through_its_layers(shell: Shell) -> None:
    with served(Odd({'"stop"': "no stop", '"stream"': "no streams"})) as wire:
        (shell.place / "mine.py").write_text(
            "from orchestrator.models import OpenAIModel, TextProtocol\n"
            f"llm = TextProtocol(OpenAIModel('m', {wire.url!r}, 'sk-test'))\n"
        )
        done = shell("model", "try", "mine.py:llm")
    assert done.code == 0, done.err
    *_, python, option = done.out.splitlines()
    assert python == "python:  OpenAIModel(..., profile=Profile(stop=False), streams=False)"
    assert option.endswith("mine.py:llm")


def test_a_model_whose_replies_are_empty_fails(shell: Shell) -> None:
    with served(Odd(empty=True, calls=False)) as wire:
        env = {"OPENAI_BASE_URL": wire.url, "OPENAI_API_KEY": KEY}
        done = shell("model", "try", "openai:m", env=env)
        assert (done.code, "text " in done.out, "output=" in done.out) == (1, True, False)
        assert shell("model", "try", "openai:m", "--json", env=env).json["answers"] is False


def test_what_cannot_be_tried(shell: Shell) -> None:
    done = shell("model", "try", "offline")
    assert (done.code, "offline is not a model behind a server" in done.err) == (2, True)
    assert shell("model", "try", "openai:").code == 2
    done = shell("model", "try", "openai:m?stop=perhaps")
    assert (done.code, "flags are" in done.err) == (2, True)
    done = shell("model", "try", "openai:m")
    assert (done.code, "OPENAI_API_KEY" in done.err) == (1, True)
    with served(refused(401, f"wrong: {KEY}")) as wire:
        done = shell("model", "try", "openai:m", env={"OPENAI_BASE_URL": wire.url, "OPENAI_API_KEY": KEY})
    assert (done.code, "HTTP 401" in done.err, KEY in done.err) == (1, True, False)
