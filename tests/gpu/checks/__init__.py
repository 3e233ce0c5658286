"""The checks in the order in which they run: those that are quick and decide most come first."""

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
