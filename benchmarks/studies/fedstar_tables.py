"""FedSTAR's tables 5 and 6 and figures 2 and 3: few labelled classes, few unlabelled clips, few clients, more passes.

    python -m benchmarks.studies.fedstar_tables [--only classes unlabelled participation epochs] [--seeds 0 1 2]
                                                [--arms supervised] [--rounds 100] [--actors 1] [--runs DIR]

Embedded keywords, 15 clients, 3 % of the clips labelled; arms and settings are those of `fedstar_long`, and nothing was
chosen here. *Classes*: each client has labelled clips of three classes on average, and unlabelled clips of all.
*Epochs* has half of the rounds, as in the paper. Writes benchmarks/results/fedstar_tables.md, .json and .png. The same
command resumes the study: it keeps finished runs, and takes runs whose folders are gone from the earlier page.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from benchmarks import study
from benchmarks.studies.fedstar_long import NONE, SUPERVISED, arms, draw, play, table

COMMON = ["data.clients.count=15", "data.labelled.share=0.03"]
PARTS: dict[str, dict[str, list[str]]] = {
    "classes": {
        f"three classes a client, sigma_c = {100 * spread:g} %": [
            "data.clients.labels=3",
            f"data.clients.labels_spread={spread:g}",
        ]
        for spread in (0.25, 0.0, 0.5)
    },
    "unlabelled": {f"U = {100 * share:g} %": [f"data.labelled.unlabelled={share:g}"] for share in (0.2, 0.5, 1.0)},
    "participation": {f"q = {100 * share:g} %": [f"cohort.fraction={share:g}"] for share in (0.2, 0.4, 0.8)},
    "epochs": {f"E = {passes}": [f"algorithm.client.epochs={passes}"] for passes in (1, 2, 4)},
}
ARMS = {name: arm for name, arm in arms(1.0).items() if name in (SUPERVISED, NONE, "FedSTAR, beta = 0.5")}


def settings(part: str, title: str, rounds: int) -> list[str]:
    """The overrides that the arms of a setting share."""
    return [*COMMON, *PARTS[part][title], f"rounds={max(1, rounds // 2) if part == 'epochs' else rounds}"]


def main() -> None:
    parser = study.parser(__spec__.name, __doc__, "study-fedstar-tables", rounds=100)
    parser.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS))
    chosen = study.chosen(parser, ARMS)
    known: dict[str, study.Found] = study.page_before("fedstar_tables", rounds=chosen.rounds).get("found", {})
    parts = dict[str, study.Found]()
    for part, titles in PARTS.items():
        for title in titles:
            found = played(part, title, known.get(title, {}), chosen) if part in chosen.only else known.get(title, {})
            parts |= {title: found} if found else {}
    text = f"""# FedSTAR: tables 5 and 6, figures 2 and 3, {chosen.rounds} rounds

Test accuracy in percent, mean ± SD over trials, with 3 % of the labels and 15 clients. Gains are in points, over the
same steps without pseudo-labels (beta = 0) and over the supervised federation, with the 95 % interval of a paired
bootstrap over speakers.
"""
    text += "".join(f"\n## {title}\n\n{table(found)}\n" for title, found in parts.items())
    print(text)
    text += "\n![Dev accuracy by round](fedstar_tables.png)\n"
    only = [part for part, titles in PARTS.items() if not titles.keys().isdisjoint(parts)]
    command = study.command(parser, chosen, only=only, arms=study.on_page(ARMS, *parts.values()))
    numbers = {"rounds": chosen.rounds, "found": parts}
    study.write("fedstar_tables", text, numbers, command, study.seeds(*parts.values()))
    draw(parts, study.RESULTS / "fedstar_tables.png")


def played(part: str, title: str, known: study.Found, chosen: argparse.Namespace) -> study.Found:
    """The runs of a setting by arm."""

    def place(arm: str, seed: int) -> Path:
        return Path(chosen.runs / study.folder_name(title) / f"seed-{seed}" / study.folder_name(arm))

    def one(arm: str, seed: int, to: Path) -> dict[str, Any]:
        config, overrides = ARMS[arm]
        given = [*settings(part, title, chosen.rounds), f"engine.actors={chosen.actors}"]
        return play(to, config, [*overrides, *given], seed)

    return study.gathered(known, ARMS, chosen, place, one)


if __name__ == "__main__":
    main()
