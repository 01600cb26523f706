"""Layers around models: caching, logging, limits, other models in need, recorded replies."""

from orchestrator.models.middleware.base import Ask, Hook, Middleware, MiddlewareModel, with_middleware
from orchestrator.models.middleware.cache import Cache, CacheStatistics, CacheStore, usable
from orchestrator.models.middleware.cassette import Cassette, CassetteMode
from orchestrator.models.middleware.layers import Fallback, Logged, RateLimit, RateStatistics

__all__ = [
    "Ask",
    "Cache",
    "CacheStatistics",
    "CacheStore",
    "Cassette",
    "CassetteMode",
    "Fallback",
    "Hook",
    "Logged",
    "Middleware",
    "MiddlewareModel",
    "RateLimit",
    "RateStatistics",
    "usable",
    "with_middleware",
]
