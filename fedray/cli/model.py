"""`fedray model`: the tensors of a configuration's model."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from rich.console import Console

from fedray.cli.parsing import Commands, add_config, command
from fedray.cli.tables import titled
from fedray.core.texts import rich_text

WORDS = ("name", "shape", "kind", "travels", "aliases", "pattern")  # columns


def add_to(commands: Commands) -> None:
    """Add `fedray model`."""
    model = command(
        commands,
        "model",
        "show the tensors of a configuration's model",
        "Show the names and shapes of a model's tensors, which of them are trained, and when they travel. Patterns in "
        "a configuration match these names. Nothing is trained, but the data are read: the outputs depend on them.",
        "fedray model fedlora/embedded algorithm.lora.rank=8",
    )
    add_config(model, "fednst/embedded", "model.layers=2")


def show(options: argparse.Namespace, console: Console) -> int:
    """Print the tensors, and sums by patterns of their names; returns the exit status."""
    from fedray import experiment
    from fedray.experiment.tensors import TensorRow, by_pattern, first_broadcast, tensor_rows

    config, source = experiment.load(options.config, options.overrides)
    config = experiment.check(config, source)
    data, _ = experiment.build_data(config, source)
    algorithm, broadcast = first_broadcast(config, data)
    rows = tensor_rows(algorithm.task, broadcast)

    def sums(name: str, tensors: Sequence[TensorRow]) -> tuple[str, ...]:
        words = (", ".join(dict.fromkeys(getattr(row, key) for row in tensors)) for key in ("kind", "travels"))
        return name, f"{len(tensors):,}", f"{sum(row.numbers for row in tensors):,}", *words

    columns = ("name", "shape", "numbers", "kind", "travels", "aliases")
    table = titled(f"Tensors of model {config.model.kind}", *columns, left=WORDS)
    for row in rows:
        shape = " x ".join(map(str, row.shape)) or "1"
        table.add_row(rich_text(row.name), shape, f"{row.numbers:,}", row.kind, row.travels, ", ".join(row.aliases))
    console.print(table)
    table = titled("Patterns and aliases", "pattern", "tensors", "numbers", "kind", "travels", left=WORDS)
    for pattern, tensors in by_pattern(rows).items():
        table.add_row(*sums(pattern, tensors))
    table.add_section()
    table.add_row(*sums("all", rows))
    console.print(table)
    moving = 4 * (broadcast.params.size - broadcast.constant)
    beside = "".join(f", beside them {name}: {4 * one.size:,}" for name, one in broadcast.vectors.items())
    print(f"Bytes to a client: {4 * broadcast.constant:,} once, {moving:,} every round{beside}.")
    return 0
