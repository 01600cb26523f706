"""A request that is longer than the model accepts, in the words of many servers, and the outcome of the node."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.errors import ModelError, ModelUnavailable, RequestTooLong
from orchestrator.models.http_errors import refusal

WORDS = [
    ("OpenAI", 400, "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000."),
    ("OpenAI Responses", 400, "Your input exceeds the context window of this model. Please adjust your input."),
    ("OpenAI, one text", 400, "Invalid 'messages[1].content': string too long. Expected a string with maximum length"),
    ("OpenAI, a part", 400, "Invalid 'messages[1].content[0].text': string too long. Expected a string with maximum"),
    ("OpenAI Responses, one text", 400, "Invalid 'input': string too long. Expected a string with maximum length"),
    ("OpenAI Responses, a result", 400, "Invalid 'input[3].output': string too long. Expected a string with maximum"),
    ("OpenAI, sum", 400, "maximum context length is 8192 tokens. (8000 in the messages, 1000 in the completion)"),
    ("vLLM", 400, "You passed 5000 input tokens; the model's maximum context length is only 4096 tokens"),
    ("vLLM, newer", 400, "The decoder prompt (length 5000) is longer than the maximum model length of 4096."),
    ("vLLM, images", 400, "The prompt is too long: Please reduce the length of the prompt or images"),
    ("llama.cpp", 400, "the request exceeds the available context size. try increasing the context size"),
    ("llama.cpp, newer", 400, "request (5000 tokens) exceeds the available context size (4096 tokens), try increasing"),
    ("llama.cpp, older", 500, "context size exceeded"),
    ("Ollama", 400, "the input length exceeds the context length"),
    ("Ollama, embeddings", 400, "input length exceeds maximum context length"),
    ("LM Studio", 400, "The number of tokens to keep from the initial prompt is greater than the context length"),
    ("LM Studio, newer", 400, "Trying to keep the first 5000 tokens when context overflows. The context is 4096."),
    ("SGLang", 400, "The input (5000 tokens) is longer than the model's context length (4096 tokens)."),
    ("SGLang, sum", 400, "Requested token count exceeds the model's maximum context length of 4096 tokens."),
    ("TGI", 422, "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000"),
    ("TGI, input", 422, "Input validation error: `inputs` must have less than 4096 tokens. Given: 5000"),
    ("Anthropic", 400, "prompt is too long: 210000 tokens > 200000 maximum"),
    ("Anthropic, sum", 400, "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000"),
    ("Bedrock", 400, "Input is too long for requested model."),
    ("Gemini", 400, "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."),
    ("Mistral", 400, "Prompt contains 40000 tokens, too large for model with 32768 maximum context length"),
    ("Groq", 400, "Please reduce the length of the messages or completion."),
    ("xAI", 400, "This model's maximum prompt length is 131072 but the request contains 200000 tokens."),
    ("OpenRouter", 400, "This endpoint's maximum context length is 128000 tokens. However, you requested about"),
    ("MiniMax", 400, "invalid params, context window exceeds limit"),
    ("Kimi", 400, "Invalid request: Your request exceeded model token limit: 8192"),
    ("Qwen", 400, "Range of input length should be [1, 30720]"),
    ("Zhipu", 400, "Prompt exceeds max length"),
    ("Copilot", 400, "prompt token count of 140000 exceeds the limit of 128000"),
    ("LiteLLM", 400, "ContextWindowExceededError: litellm.BadRequestError: context window exceeded"),
    ("any proxy", 413, "Request Entity Too Large"),
]
OTHERS = [
    (400, "max_tokens must be at least 1"),
    (400, "the function name is too long: at most 64 characters"),
    (400, "Invalid parameter: context is required"),
    (400, "you exceeded the maximum number of tools"),
    (422, "the description of a tool is too long"),
    (400, "Invalid 'messages[2].tool_calls[0].id': string too long. Expected a string with maximum length 40"),
    (400, "Invalid 'messages[2].name': string too long. Expected a string with maximum length 64"),
    (400, "Invalid 'input[2].call_id': string too long. Expected a string with maximum length 64"),
    (400, "Invalid 'tools[0].function.description': string too long. Expected a string with maximum length 1024"),
    (400, "Invalid 'tools[0].input': string too long. Expected a string with maximum length 1024"),
    (400, "Invalid 'user': string too long. Expected a string with maximum length 64"),
    (429, "Rate limit reached: the request exceeds the maximum number of tokens per minute"),
    (503, "the queue exceeds the maximum size"),
    (500, "internal error"),
]
LONG_ANSWERS = """\
maximum context length is 8192 tokens and your request has 100 input tokens, but max_tokens=9000
'max_tokens' or 'max_completion_tokens' is too large: 9000. This model's maximum context length is 8192 tokens
maximum context length is 8192 tokens. However, you requested 9100 tokens (100 in the messages, 9000 in the completion)
the model's maximum context length of 4096 tokens: 100 tokens from the input messages and 5000 tokens for the completion
""".splitlines()


@pytest.mark.parametrize(("server", "status", "words"), WORDS, ids=[server for server, _, _ in WORDS])
def test_the_words_of_servers(server: str, status: int, words: str) -> None:
    error = refusal("m", status, words)
    assert type(error) is RequestTooLong
    assert "longer than the model accepts: shorten the conversation" in str(error)
    assert words[:40] in str(error)


@pytest.mark.parametrize("name", ["context_length_exceeded", "exceed_context_size_error", "request_too_large"])
def test_the_names_of_servers(name: str) -> None:
    assert type(refusal("m", 400, "no", (name,))) is RequestTooLong


@pytest.mark.parametrize("names", [(), ("context_length_exceeded",)])
@pytest.mark.parametrize("words", LONG_ANSWERS, ids=["words", "vLLM", "OpenAI", "SGLang"])
def test_an_answer_that_alone_would_fill_the_window_is_not_a_long_conversation(words: str, names: Any) -> None:
    error = refusal("m", 400, words, names)
    assert type(error) is ModelError
    assert "max_tokens is not smaller than the model's context window: give a lower max_tokens" in str(error)
    assert error.flag == "", "no other request is tried"


@pytest.mark.parametrize(("status", "words"), OTHERS)
def test_other_refusals(status: int, words: str) -> None:
    assert type(refusal("m", status, words)) in (ModelError, ModelUnavailable)
