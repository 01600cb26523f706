"""What the calls of a journal spent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from orchestrator.graph.limits import Usage
from orchestrator.kernel.records import EffectIntended, EffectSettled, Record


@dataclass(frozen=True, slots=True)
class Spending:
    """Calls and usage of one journal."""

    calls: Mapping[str, int]
    """Kind of a call (`model`, `tool`, `effect`) -> how many succeeded."""
    usage: Usage
    """Of all calls and attempts, failed ones too. Runs of graphs that were called as tools are not in it."""


def spending(records: Iterable[Record]) -> Spending:
    """Add up what the calls of a journal spent."""
    kinds: dict[str, str] = {}
    succeeded: set[str] = set()
    usage = Usage()
    for record in records:
        if isinstance(record, EffectIntended):
            kinds[record.key] = record.kind
        elif isinstance(record, EffectSettled):
            usage += record.usage or Usage()
            if record.ok:
                succeeded.add(record.key)
    return Spending(Counter(kinds[key] for key in succeeded if key in kinds), usage)
