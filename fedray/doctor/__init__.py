"""`fedray doctor`: what this machine has, what will run on it and how fast, and what to do about whatever will not."""

from __future__ import annotations

from collections.abc import Callable

from rich.console import Console
from rich.markup import escape
from torch import nn

from fedray.core.cache import cache_root
from fedray.doctor import looks, speed
from fedray.doctor.looks import Findings, Problem


def show(console: Console, build: Callable[[], nn.Module] = speed.crnn) -> int:
    """Print the page; 0 when a run would work here, else 1.

    It starts Ray unless there is one, holds all that a run would get for some ten seconds, and gives everything back.
    `build` makes the model that is timed: features [B, T, 40] and lengths [B] in, 35 logits out.
    """
    problems: list[Problem] = []

    def section(title: str, found: Findings) -> bool:
        console.print(f"[bold]{title}[/bold]", highlight=False)
        for label, text in found.lines:
            console.print(f"  {label:<18}{escape(text)}", highlight=False, soft_wrap=True)
        problems.extend(found.problems)
        return not any(problem.stops for problem in found.problems)

    section("Machine", looks.machine())
    section("GPUs", looks.gpus())
    complete = section("Versions", looks.versions())
    reachable = section("Environment", looks.environment())
    section("Cache", looks.cache(cache_root()))
    if complete and reachable:
        section("What runs here", speed.capacity(console, build))
    console.print(f"[bold]Problems found: {len(problems)}[/bold]" if problems else "[bold]No problems found.[/bold]", highlight=False)
    for problem in sorted(problems, key=lambda problem: not problem.stops):
        mark = "[red]stops a run:[/red]" if problem.stops else "[yellow]to know:[/yellow]"
        console.print(f"  {mark} {escape(problem.text)}", highlight=False, soft_wrap=True)
    return int(any(problem.stops for problem in problems))
