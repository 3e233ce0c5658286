"""`fedray cache`: shows, checks and prunes the cache."""

from __future__ import annotations

import argparse
import re
import time

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fedray.cli.parsing import Commands, command

SECONDS = {"h": 3600.0, "d": 86400.0, "w": 604800.0}
BYTES = {"MB": 1e6, "GB": 1e9, "TB": 1e12}


def add_to(commands: Commands) -> None:
    """Add `fedray cache`."""
    cache = command(
        commands,
        "cache",
        "show, check and prune the cache",
        "Show what the cache holds: corpora, features, seed models, prepared clients. --older and --keep select "
        "entries; --remove deletes them. Entries in use are kept, and a run rebuilds whatever it lacks.",
        "fedray cache --older 30d --keep 20GB --remove",
    )
    cache.add_argument("--older", type=_age, metavar="AGE", help="select entries not used for this long: 12h, 30d, 4w")
    cache.add_argument(
        "--keep", type=_size, metavar="SIZE", help="select the longest unused, to keep this much: 500MB, 20GB, 1TB"
    )
    cache.add_argument("--verify", action="store_true", help="read all entries, and select damaged ones")
    cache.add_argument("--remove", action="store_true", help="remove the selected entries")


def _age(text: str) -> float:
    return _number(text, SECONDS, "30d, 12h or 4w")


def _size(text: str) -> float:
    return _number(text, BYTES, "20GB, 500MB or 1TB")


def _number(text: str, units: dict[str, float], examples: str) -> float:
    found = re.fullmatch(rf"(\d+(?:\.\d+)?)({'|'.join(units)})", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} cannot be read: write it like {examples}")
    return float(found[1]) * units[found[2]]


def show(options: argparse.Namespace, console: Console) -> int:
    """Print the entries by kind and those selected; returns the exit status, 1 if a damaged entry is kept."""
    from fedray.doctor.checks import size
    from fedray.storage import cache_entries as cache
    from fedray.storage.cache import cache_root

    root, now = cache_root().resolve(), time.time()
    found = cache.entries(root)
    console.print(f"{escape(str(root))}: {len(found):,} entries, {size(sum(entry.bytes for entry in found))}")
    table = Table.grid(padding=(0, 2))
    for kind in (*cache.KINDS, cache.LEFTOVER):
        entries = [entry for entry in found if entry.kind == kind]
        if entries:
            last = f"last used {_ago(now - max(entry.used for entry in entries))}"
            table.add_row(f"  {kind}", f"{len(entries):,}", size(sum(entry.bytes for entry in entries)), last)
    if found:
        console.print(table, highlight=False)
    choosing = options.older is not None or options.keep is not None
    before = now - options.older if options.older is not None else None
    chosen = {entry: "" for entry in cache.to_remove(found, before, options.keep)} if choosing else {}
    damaged = {entry: text for entry in found if (text := cache.damage(entry))} if options.verify else {}
    stays = 0
    for entry, why in (chosen | damaged).items():
        gone = options.remove and cache.remove(entry)
        stays += entry in damaged and not gone
        done = "removed" if gone else "kept, in use by a process" if options.remove else "would be removed"
        words = [done, size(entry.bytes), f"last used {_ago(now - entry.used)}", *([f"damaged: {why}"] if why else [])]
        console.print(f"{escape(str(entry.path.relative_to(root)))}: {escape(', '.join(words))}", soft_wrap=True)
    if options.verify and not damaged:
        console.print("no entry is damaged")
    if (chosen or damaged) and not options.remove:
        console.print("Nothing was removed: add --remove to remove these.")
    return 1 if stays else 0


def _ago(seconds: float) -> str:
    return f"{seconds / 86400:.0f} days ago" if seconds >= 2 * 86400 else f"{max(0, seconds) / 3600:.0f} hours ago"
