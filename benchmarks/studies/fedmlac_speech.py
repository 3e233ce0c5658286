"""FedMLAC against FedAvg, FedProx and FedOpt on real speech: arabic-commands (24 speakers) and FSDD (six), three seeds.

    python -m benchmarks.studies.fedmlac_speech [--seeds 0 1 2] [--runs runs/study-fedmlac-speech]

Needs FEDRAY_SPEECH, the folder that holds arabic-commands/ and fsdd/. Settings are those of the embedded study; nothing
was chosen on these sets.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from yaml import safe_load

from benchmarks import study
from benchmarks.studies.fedmlac_keywords import METHODS, SCORING

CORPORA = {"arabic-commands": "arabic_commands", "fsdd": "digits"}


def play(corpus: str, method: str, seed: int, runs: Path) -> dict[str, Any]:
    """The results of a run: the method's configuration with the corpus' data, features and task."""
    described = safe_load((study.ROOT / "configs" / "fedmlac" / f"{CORPORA[corpus]}.yaml").read_text(encoding="utf-8"))
    data = described["data"] | {"root": str(study.speech(corpus)), "seed": seed}
    overrides = [
        f"data={data}".replace("None", "null"),
        *(f"{key}={described[key]}" for key in ("features", "task") if key in described),
    ]
    out = runs / f"seed-{seed}" / corpus / method.lower()
    print(f"seed {seed}, {corpus}, {method}: {out}", flush=True)
    return study.run(f"configs/fedmlac/{METHODS[method]}.yaml", [f"seed={seed}", *SCORING, *overrides], out)


def main() -> None:
    parser = study.parser(__spec__.name, __doc__, "study-fedmlac-speech")
    chosen = parser.parse_args()
    rows, kept = [], {}
    for corpus in CORPORA:
        for method in METHODS:
            results = [play(corpus, method, seed, chosen.runs) for seed in chosen.seeds]
            kept[f"{corpus}, {method}"] = [{key: one[key] for key in ("personal", "best")} for one in results]
            rows.append(
                {
                    "corpus": corpus,
                    "method": method,
                    "personal models": study.spread([one["personal"]["test/accuracy"] for one in results]),
                    "macro-F1": study.spread([one["personal"]["test/macro_f1"] for one in results]),
                    "shared model": study.spread([one["best"]["test/accuracy"] for one in results]),
                }
            )
    text = f"# FedMLAC on real speech\n\nTest accuracy in percent, mean ± SD over seeds.\n\n{study.table(rows)}"
    study.write("fedmlac_speech", text, {"found": kept}, study.command(parser, chosen), chosen.seeds)
    print(text)


if __name__ == "__main__":
    main()
