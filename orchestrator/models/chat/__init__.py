"""The chat completions format: requests written in it, answers read from it, in one piece or in many.

https://platform.openai.com/docs/api-reference/chat; servers differ in details, so reading is lenient: a field
that is missing or odd costs that field and not the answer.
"""

from orchestrator.models.chat.reply import counts, error_in, parsed, read_arguments, reply_from, reply_of, understood
from orchestrator.models.chat.request import body_of
from orchestrator.models.chat.stream import Assembly, EventDecoder, Piece

__all__ = [
    "Assembly",
    "EventDecoder",
    "Piece",
    "body_of",
    "counts",
    "error_in",
    "parsed",
    "read_arguments",
    "reply_from",
    "reply_of",
    "understood",
]
