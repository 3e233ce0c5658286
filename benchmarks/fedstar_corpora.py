"""FedSTAR beside the supervised federation on other classes and on real speech, three trials each.

    python benchmarks/fedstar_corpora.py --corpora ../shared/data [--seeds 0 1 2] [--only digits] [--runs runs/study-fedstar-corpora]

Six embedded languages and ten embedded sounds with 3 % and 20 % of the clips labelled; arabic-commands (12 speakers to train on, dealt to
5 clients) and FSDD (six speakers' takes, dealt to 15) with 10 % and 20 %. The folder of corpora holds arabic-commands/ and fsdd/. Settings
are those of the embedded keywords; nothing was chosen on these sets.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import study
from fedstar_keywords import FEDERATIONS, score
from yaml import safe_load

CORPORA = {  # configuration: the folder of real speech, and the shares of labelled clips
    "arabic_commands": ("arabic-commands", (0.1, 0.2)),
    "digits": ("fsdd", (0.1, 0.2)),
    "languages": (None, (0.03, 0.2)),
    "events": (None, (0.03, 0.2)),
}


def play(corpus: str, share: float, federation: str, seed: int, root: Path, runs: Path) -> dict[str, Any]:
    """The results of a run: the federation's configuration with the corpus' data and features."""
    described = safe_load((study.ROOT / "configs" / "fedstar" / f"{corpus}.yaml").read_text(encoding="utf-8"))
    folder, _ = CORPORA[corpus]
    data = described["data"] | {"labelled": {"share": share}, "seed": seed}
    if folder is not None:
        data["root"] = str((root / folder).resolve())
    own = [f"data={data}", *(f"{key}={described[key]}" for key in ("features", "task") if key in described)]
    out = runs / f"seed-{seed}" / corpus / f"{federation.lower()}-{100 * share:.0f}"
    print(f"seed {seed}, {corpus}, L = {100 * share:.0f} %, {federation}: {out}", flush=True)
    return study.run(f"configs/fedstar/{FEDERATIONS[federation]}.yaml", [f"seed={seed}", *own], out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpora", type=Path, required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--runs", type=Path, default=study.ROOT / "runs" / "study-fedstar-corpora", help="where the run folders are kept")
    parser.add_argument("--only", nargs="+", choices=list(CORPORA), default=list(CORPORA))
    chosen = parser.parse_args()
    for page, real in (("fedstar_speech", True), ("fedstar_twins", False)):
        corpora = [corpus for corpus in chosen.only if (CORPORA[corpus][0] is not None) is real]
        if corpora:
            write(page, corpora, chosen.seeds, chosen.corpora, chosen.runs)


def write(page: str, corpora: Sequence[str], seeds: Sequence[int], root: Path, runs: Path) -> None:
    """benchmarks/<page>.md and .json: what is not played yet is played."""
    rows, kept = [], {}
    for corpus in corpora:
        for share in CORPORA[corpus][1]:
            found = {name: [play(corpus, share, name, seed, root, runs) for seed in seeds] for name in FEDERATIONS}
            kept[f"{corpus}, {share}"] = {name: [one["best"] for one in results] for name, results in found.items()}
            scores = {name: score(results) for name, results in found.items()}
            gains = [after - before for before, after in zip(*scores.values(), strict=True)]
            row = {"corpus": corpus, "labels": f"{100 * share:.0f} %"} | {name: study.spread(values) for name, values in scores.items()}
            rows.append(row | {"gain": study.spread(gains)})
    title = "on real speech" if page == "fedstar_speech" else "on other embedded classes"
    text = f"# FedSTAR {title}\n\nTest accuracy in percent, mean ± SD over trials.\n\n{study.table(rows)}"
    command = f"python benchmarks/fedstar_corpora.py --corpora ../shared/data --only {' '.join(corpora)}"
    study.write(page, text, {"found": kept}, command, seeds)
    print(text)


if __name__ == "__main__":
    main()
