"""Layers around models: caching, logging, rate limits, fallback models, recorded replies."""

from orchestrator.models.middleware.base import Ask, Hook, Middleware, MiddlewareModel, with_middleware
from orchestrator.models.middleware.cache import Cache, CacheStatistics, CacheStore, usable
from orchestrator.models.middleware.cassette import Cassette, CassetteMode
from orchestrator.models.middleware.fallback import Fallback
from orchestrator.models.middleware.logged import Logged
from orchestrator.models.middleware.rate_limit import RateLimit, RateStatistics

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
