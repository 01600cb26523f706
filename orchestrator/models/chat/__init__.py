"""The chat completions format: requests are written in it, and answers read, whole or streamed.

https://platform.openai.com/docs/api-reference/chat; servers differ in details, so reading is lenient: a field that is
missing or invalid is ignored, and the rest of the answer is used.
"""

from orchestrator.models.chat.ends import unfinished
from orchestrator.models.chat.reply import chunk_of, counts, error_in, parsed, reply_from, reply_of, understood
from orchestrator.models.chat.request import body_of
from orchestrator.models.chat.stream import Assembly, EventDecoder, Piece, StreamAssembly, broken_off, is_end, reply_to

__all__ = [
    "Assembly",
    "EventDecoder",
    "Piece",
    "StreamAssembly",
    "body_of",
    "broken_off",
    "chunk_of",
    "counts",
    "error_in",
    "is_end",
    "parsed",
    "reply_from",
    "reply_of",
    "reply_to",
    "understood",
    "unfinished",
]
