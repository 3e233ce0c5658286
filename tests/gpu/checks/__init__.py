"""The checks, in the order in which they are played: what is quick and decides most comes first."""

from __future__ import annotations

CHECKS = (
    "device",
    "models",
    "features",
    "algorithms",
    "learning",
    "memory",
    "profile",
    "graphs",
    "half",
    "speed",
    "lanes",
    "sharing",
)
