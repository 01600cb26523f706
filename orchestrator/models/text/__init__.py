"""Tool calls for models that only write text, in one of several forms.

A form defines how calls are written: it instructs the model, writes earlier calls, reads replies, and makes untrusted
texts harmless. Reading a reply is a pure function, `Form.parse`; so is `CallScreen`, which finds what can be shown
while the reply is still arriving. The law between the parts of a form: `parse` reads what `render` writes, never reads
a call in the output of `defused`, and everything before `edge` is content.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator._lazy import lazy_names

if TYPE_CHECKING:
    from orchestrator.models.text.protocol import TextProtocol

__all__ = ["TextProtocol"]

if not TYPE_CHECKING:  # a type checker knows the names from the imports above, and reports all others
    __getattr__, __dir__ = lazy_names(__name__, {"orchestrator.models.text.protocol": ("TextProtocol",)})
