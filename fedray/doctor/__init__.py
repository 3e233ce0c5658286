"""`fedray doctor`: checks this machine, times a small standard workload, and names problems with their remedies."""

from __future__ import annotations

from collections.abc import Callable

from rich.console import Console
from torch import nn

from fedray.core.texts import rich_text
from fedray.doctor import checks, speed
from fedray.doctor.checks import Findings, Problem
from fedray.storage.cache import cache_root


def show(console: Console, build: Callable[[], nn.Module] = speed.crnn) -> int:
    """Print the page; returns 0 if a run would work here, else 1.

    Starts Ray unless it is running already, uses the resources of a run for about ten seconds, and releases them.
    `build` makes the timed model: features [B, T, 40] and lengths [B] in, logits [B, 35] out.
    """
    problems: list[Problem] = []

    def section(title: str, found: Findings) -> bool:
        console.print(f"[bold]{title}[/bold]", highlight=False)
        for label, text in found.lines:
            console.print(f"  {label:<18}{rich_text(text)}", highlight=False, soft_wrap=True)
        problems.extend(found.problems)
        return not any(problem.stops for problem in found.problems)

    section("Machine", checks.machine())
    section("GPUs", checks.gpus())
    complete = section("Versions", checks.versions())
    reachable = section("Environment", checks.environment())
    section("Cache", checks.cache(cache_root()))
    if complete and reachable:
        section("What runs here", speed.capacity(console, build))
    count = f"Problems found: {len(problems)}" if problems else "No problems found."
    console.print(f"[bold]{count}[/bold]", highlight=False)
    for problem in sorted(problems, key=lambda problem: not problem.stops):
        mark = "[red]stops a run:[/red]" if problem.stops else "[yellow]warning:[/yellow]"
        console.print(f"  {mark} {rich_text(problem.text)}", highlight=False, soft_wrap=True)
    return int(any(problem.stops for problem in problems))
