"""FedSTAR beside the supervised federation on other classes and on real speech, three trials each.

    python -m benchmarks.studies.fedstar_corpora [--only languages events digits arabic_commands] [--seeds 0 1 2]
                                                 [--runs runs/study-fedstar-corpora]

Six embedded languages and ten embedded sounds have 3 % and 20 % of the clips labelled; arabic-commands (12 training
speakers, dealt to 5 clients) and FSDD (six speakers' takes, dealt to 15) have 10 % and 20 %. Real speech needs
FEDRAY_SPEECH, the folder that holds arabic-commands/ and fsdd/. Settings are those of the embedded keywords; nothing
was chosen on these sets. Pages: fedstar_corpora_twins.md and fedstar_corpora_speech.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from yaml import safe_load

from benchmarks import study
from benchmarks.studies.fedstar_keywords import FEDERATIONS, score

CORPORA = {  # configuration: the folder of real speech, and the shares of labelled clips
    "arabic_commands": ("arabic-commands", (0.1, 0.2)),
    "digits": ("fsdd", (0.1, 0.2)),
    "languages": (None, (0.03, 0.2)),
    "events": (None, (0.03, 0.2)),
}


def play(corpus: str, share: float, federation: str, seed: int, runs: Path) -> dict[str, Any]:
    """The results of a run: the federation's configuration with the corpus' data and features."""
    described = safe_load((study.ROOT / "configs" / "fedstar" / f"{corpus}.yaml").read_text(encoding="utf-8"))
    folder, _ = CORPORA[corpus]
    data = described["data"] | {"labelled": {"share": share}, "seed": seed}
    if folder is not None:
        data["root"] = str(study.speech(folder))
    overrides = [f"data={data}", *(f"{key}={described[key]}" for key in ("features", "task") if key in described)]
    out = runs / f"seed-{seed}" / corpus / f"{federation.lower()}-{100 * share:.0f}"
    print(f"seed {seed}, {corpus}, L = {100 * share:.0f} %, {federation}: {out}", flush=True)
    return study.run(f"configs/fedstar/{FEDERATIONS[federation]}.yaml", [f"seed={seed}", *overrides], out)


def main() -> None:
    parser = study.parser(__spec__.name, __doc__, "study-fedstar-corpora")
    parser.add_argument("--only", nargs="+", choices=list(CORPORA), default=list(CORPORA))
    chosen = parser.parse_args()
    for page, real in (("fedstar_corpora_speech", True), ("fedstar_corpora_twins", False)):
        corpora = [corpus for corpus in chosen.only if (CORPORA[corpus][0] is not None) is real]
        if corpora:
            write(page, study.command(parser, chosen, only=corpora), corpora, chosen.seeds, chosen.runs)


def write(page: str, command: str, corpora: Sequence[str], seeds: Sequence[int], runs: Path) -> None:
    """Play the runs that are missing, and write the page."""
    rows, kept = [], {}
    for corpus in corpora:
        for share in CORPORA[corpus][1]:
            found = {name: [play(corpus, share, name, seed, runs) for seed in seeds] for name in FEDERATIONS}
            kept[f"{corpus}, {share}"] = {name: [one["best"] for one in results] for name, results in found.items()}
            scores = {name: score(results) for name, results in found.items()}
            gains = [after - before for before, after in zip(*scores.values(), strict=True)]
            row = {"corpus": corpus, "labels": f"{100 * share:.0f} %"} | {
                name: study.spread(values) for name, values in scores.items()
            }
            rows.append(row | {"gain": study.spread(gains)})
    title = "on real speech" if page == "fedstar_corpora_speech" else "on other embedded classes"
    text = f"# FedSTAR {title}\n\nTest accuracy in percent, mean ± SD over trials.\n\n{study.table(rows)}"
    study.write(page, text, {"found": kept}, command, seeds)
    print(text)


if __name__ == "__main__":
    main()
