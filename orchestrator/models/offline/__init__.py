"""A model that needs no key and no network: it does arithmetic, with the tools that it is offered."""

from orchestrator.models.offline.model import OfflineModel

__all__ = ["OfflineModel"]
