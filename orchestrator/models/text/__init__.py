"""Tool calls for models that only write text, in one of several forms.

A form says how calls are written: it tells the model so, writes earlier calls, reads replies, and makes texts from
outside harmless. Reading a reply is a pure function, `Form.parse`; what of it can be shown while it is still coming
is one too, `CallScreen`. The law between the forms' parts: what `render` writes `parse` reads, what `defused` lets
through never reads as a call, and what `edge` lets through is always content.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator._lazy import lazy_names

if TYPE_CHECKING:
    from orchestrator.models.text.protocol import TextProtocol

__all__ = ["TextProtocol"]

if not TYPE_CHECKING:  # a type checker knows the name from the import above, and reports all others
    __getattr__, __dir__ = lazy_names(__name__, {"orchestrator.models.text.protocol": ("TextProtocol",)})
