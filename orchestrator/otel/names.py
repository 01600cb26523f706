"""The names of spans, attributes and metrics.

Those that start with `gen_ai.` are the semantic conventions for generative AI of OpenTelemetry, in their release
v0.1.0: https://github.com/open-telemetry/semantic-conventions-genai/tree/v0.1.0. The package of conventions on PyPI has
older ones. Those that start with `orchestrator.` are our own.
"""

from __future__ import annotations

RELEASE = "0.1.0"
"""Version of the conventions."""

# -- operations: the first word of a span's name ---------------------------------------------------------------------

CHAT = "chat"
EXECUTE_TOOL = "execute_tool"
INVOKE_AGENT = "invoke_agent"
INVOKE_WORKFLOW = "invoke_workflow"
PLAN = "plan"
OPERATIONS = (CHAT, EXECUTE_TOOL, INVOKE_AGENT, INVOKE_WORKFLOW, PLAN)

# -- attributes ------------------------------------------------------------------------------------------------------

OPERATION = "gen_ai.operation.name"
PROVIDER = "gen_ai.provider.name"
AGENT = "gen_ai.agent.name"
REQUEST_MODEL = "gen_ai.request.model"
REQUEST_STREAM = "gen_ai.request.stream"
REQUEST_MAX_TOKENS = "gen_ai.request.max_tokens"
REQUEST_TEMPERATURE = "gen_ai.request.temperature"
REQUEST_TOP_P = "gen_ai.request.top_p"
RESPONSE_MODEL = "gen_ai.response.model"
RESPONSE_ID = "gen_ai.response.id"
FINISH_REASONS = "gen_ai.response.finish_reasons"
FIRST_CHUNK = "gen_ai.response.time_to_first_chunk"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
CACHE_READ_TOKENS = "gen_ai.usage.cache_read.input_tokens"
CACHE_WRITE_TOKENS = "gen_ai.usage.cache_write.input_tokens"
REASONING_TOKENS = "gen_ai.usage.reasoning.output_tokens"
TOOL = "gen_ai.tool.name"
TOOL_TYPE = "gen_ai.tool.type"
TOOL_DESCRIPTION = "gen_ai.tool.description"
INPUT_MESSAGES = "gen_ai.input.messages"
OUTPUT_MESSAGES = "gen_ai.output.messages"
TOOL_ARGUMENTS = "gen_ai.tool.call.arguments"
TOOL_RESULT = "gen_ai.tool.call.result"
ATTRIBUTES = (
    OPERATION, PROVIDER, AGENT, REQUEST_MODEL, REQUEST_STREAM, REQUEST_MAX_TOKENS, REQUEST_TEMPERATURE, REQUEST_TOP_P,
    RESPONSE_MODEL, RESPONSE_ID, FINISH_REASONS, FIRST_CHUNK, INPUT_TOKENS, OUTPUT_TOKENS, CACHE_READ_TOKENS,
    CACHE_WRITE_TOKENS, REASONING_TOKENS, TOOL, TOOL_TYPE, TOOL_DESCRIPTION, INPUT_MESSAGES, OUTPUT_MESSAGES,
    TOOL_ARGUMENTS, TOOL_RESULT,
)  # fmt: skip

ERROR_TYPE = "error.type"
SERVER_ADDRESS = "server.address"
SERVER_PORT = "server.port"
GENERAL = (ERROR_TYPE, SERVER_ADDRESS, SERVER_PORT)
"""Attributes of the general conventions."""

# -- metrics ---------------------------------------------------------------------------------------------------------

INFERENCE_DURATION = "gen_ai.client.inference.duration"
INFERENCE_FIRST_CHUNK = "gen_ai.client.inference.time_to_first_chunk"
TOOL_DURATION = "gen_ai.execute_tool.duration"
INFERENCE_TOKENS = {
    INPUT_TOKENS: "gen_ai.client.inference.usage.input_tokens",
    OUTPUT_TOKENS: "gen_ai.client.inference.usage.output_tokens",
    CACHE_READ_TOKENS: "gen_ai.client.inference.usage.cache_read.input_tokens",
    CACHE_WRITE_TOKENS: "gen_ai.client.inference.usage.cache_write.input_tokens",
    REASONING_TOKENS: "gen_ai.client.inference.usage.reasoning.output_tokens",
}
"""Attribute of a span -> the counter of these tokens."""
METRICS = (INFERENCE_DURATION, INFERENCE_FIRST_CHUNK, TOOL_DURATION, *INFERENCE_TOKENS.values())
DURATION_BUCKETS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
"""Upper bounds of the classes of durations, in seconds."""

# -- our own ---------------------------------------------------------------------------------------------------------

RUN = "orchestrator.run.id"
RUN_STATUS = "orchestrator.run.status"
RUN_COST = "orchestrator.run.cost"
CHECKPOINT = "orchestrator.checkpoint.id"
QUESTIONS = "orchestrator.questions"
NODE = "orchestrator.node"
NODE_KIND = "orchestrator.node.kind"
PATH = "orchestrator.path"
ACTIVATION = "orchestrator.activation"
ATTEMPT = "orchestrator.attempt"
OUTCOME = "orchestrator.outcome"
CALL_KEY = "orchestrator.call.key"
COST = "orchestrator.cost"
LINK = "orchestrator.link"
"""Why a span is linked: `resumed`, `fork` or `replay`."""
STARTED, PAUSED, RESUMED, CHECKPOINTED = "started", "paused", "resumed", "checkpointed"
REQUESTED = "requested"
"""Why a drive is linked to the span of the client whose request began it."""
REUSED = "result reused"
"""Events of spans."""
