"""The engine against the floor (the same gradient steps in bare torch), the time of a round by phase, and scaling.

    python -m benchmarks.engine.engine                  # all parts, about 16 minutes on two cores; writes the page
    python -m benchmarks.engine.engine --quick          # CRNN-Base against the floor (2 minutes); writes nothing
    python -m benchmarks.engine.engine --only cohort    # one part; merged into the page
    python -m benchmarks.engine.engine --only floor --models lite wide

Parts: floor, phases, population, cohort, size, speakers. Nothing else should run on the machine meanwhile.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import study
from benchmarks.engine import page, parts
from benchmarks.engine.parts import PARTS, QUICK, TINY, Bench, Sizes
from benchmarks.engine.workloads import KEYWORDS

NUMBERS = study.RESULTS / "engine.json"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="only CRNN-Base against the floor; writes nothing")
    parser.add_argument("--only", choices=PARTS, help="one part")
    parser.add_argument("--models", nargs="+", choices=KEYWORDS, default=list(KEYWORDS), help="of the part floor")
    parser.add_argument("--work", type=Path, help="folder of the runs (default: a temporary one)")
    parser.add_argument(
        "--tiny", action="store_true", help="sizes that take seconds, to try the program; writes nothing"
    )
    chosen = parser.parse_args(arguments)
    os.environ["OMP_NUM_THREADS"] = "1"
    cores = study.machine()["cores"]
    sizes = TINY if chosen.tiny else QUICK if chosen.quick else Sizes()
    with tempfile.TemporaryDirectory(prefix="fedray-bench-", dir=chosen.work) as work:
        bench = Bench(Path(work), sizes, cores)
        if chosen.quick:
            print(verdict(parts.floor(bench, ["base"], side_by_side=False)["base"]))
            return
        numbers = json.loads(NUMBERS.read_text(encoding="utf-8")) if NUMBERS.exists() and not chosen.tiny else {}
        for name in [chosen.only] if chosen.only else PARTS:
            bench.say(f"part {name}")
            measured = parts.floor(bench, chosen.models) if name == "floor" else PARTS[name](bench)
            merge(numbers, name, measured, stamp(sizes))
            if not chosen.tiny:  # after each part, in case the next one fails
                page.write(numbers, NUMBERS.parent)
    if chosen.tiny:
        print(page.text(numbers))
    for measured in numbers.get("floor", {}).values():
        print(verdict(measured))


def stamp(sizes: Sizes) -> dict[str, Any]:
    """Machine, versions and date of a part."""
    return study.machine() | {"pairs": sizes.pairs, "rounds": sizes.rounds}


def merge(numbers: dict[str, Any], part: str, measured: dict[str, Any], stamped: dict[str, Any]) -> None:
    """Put a part's numbers beside the others; each model of the floor is a part."""
    if part == "floor":
        numbers.setdefault("floor", {}).update(
            {model: found | {"measured": stamped} for model, found in measured.items()}
        )
    else:
        numbers[part] = measured | {"measured": stamped}


def verdict(measured: dict[str, Any]) -> str:
    return f"{measured['title']}: seconds a round over the floor: {measured['ratio']['fedray']:.2f}"


if __name__ == "__main__":
    main(sys.argv[1:])
