"""FedMLAC's layer-wise pruning (LPA) against clients with wrong labels, each on its own or all in agreement.

    python -m benchmarks.studies.fedmlac_attackers [--shares 0.3] [--only "LPA, 10 %"] [--seeds 0 1 2] [--rounds 60]
                                                   [--actors 1] [--runs DIR]

A share of the clients has only wrong labels. In `each its own confusion` a client replaces a true word with one or two
wrong ones, different from those of the next client. In `one confusion for all` every attacker replaces it with the same
word. Rules are compared by the plug-in, the model that they aggregate, on new speakers in the best round by dev. Writes
benchmarks/results/fedmlac_attackers.md and .json. The same command resumes; finished runs are kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import pyarrow.parquet as pq

from benchmarks import study
from fedray.data.corruption import corrupted_clients
from fedray.report.bootstrap import Counts
from fedray.runs.folder import RunFolder

RULES = {
    "mean by examples": "{kind: by_examples}",
    "LPA, 10 %": "{kind: layerwise_pruning, pruning: 0.1}",
    "LPA, 30 %": "{kind: layerwise_pruning, pruning: 0.3}",
    "median": "{kind: median}",
    "Multi-Krum": "{kind: krum, byzantine: 0.3, select: 7}",
}
NOBODY = "nobody"
ATTACKS = {"each its own confusion": "sparsity: 0.8", "one confusion for all": "coordinated: true"}
FIRST = next(iter(RULES))
Found = dict[str, list[dict[str, Any]]]  # rule -> its runs


def play(attack: str, rule: str, seed: int, share: float, settings: Sequence[str], out: Path) -> dict[str, Any]:
    """The plug-in's accuracy and its counts by speaker, and the share of attackers among the clients left out."""
    print(out, flush=True)
    overrides = [f"seed={seed}", f"data.seed={seed}", f"strategy={RULES[rule]}", *settings]
    if attack != NOBODY:
        overrides.append(f"data.corruption={{label_errors: 1.0, clients: {share:g}, {ATTACKS[attack]}}}")
    results = study.run("configs/fedmlac/embedded.yaml", overrides, out)
    right = study.right_by("speaker", study.predictions(out, "best"))
    clients = pq.read_table(out / "clients.parquet", columns=["client"])["client"].to_pylist()
    attackers = corrupted_clients(clients, share, seed)
    left = [row["client"] in attackers for row in RunFolder(out).rows("left_out.jsonl") for _ in row["layers"]]
    return {"best": results["best"], "counts": right, "attackers": 100 * mean(left) if left else None}


def table(found: Mapping[str, Found], rounds: int) -> str:
    """A row for each attack and rule. `found`: attack -> rule -> its runs of so many rounds."""
    rows = []
    for attack, rules in found.items():
        for rule, runs in rules.items():
            row = {"wrong labels": attack, "rule": rule}
            row["plug-in"] = study.spread([run["best"]["test/accuracy"] for run in runs])
            if FIRST in rules:
                row[f"against {FIRST}"] = "" if rule == FIRST else gain(rules[FIRST], runs)
            if NOBODY in found:
                row["change under attack"] = "" if attack == NOBODY else gain(found[NOBODY][rule], runs)
            shares = [run["attackers"] for run in runs if run["attackers"] is not None]
            row["attackers among clients left out (%)"] = (
                "" if attack == NOBODY or not shares else f"{mean(shares):.0f}"
            )
            rows.append(
                row | {"best rounds": study.best_rounds([run["best"]["round"] for run in runs], [rounds] * len(runs))}
            )
    return study.table(rows)


def gain(before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]) -> str:
    counts: list[list[Counts]] = [[run["counts"] for run in runs] for runs in (before, after)]
    return str(study.change(*counts, "points"))


def main() -> None:
    parser = study.parser(__spec__.name, __doc__, "study-fedmlac-attackers", rounds=60)
    parser.add_argument("--shares", type=float, nargs="+", default=[0.3], help="of the clients that attack")
    parser.add_argument("--only", nargs="+", choices=list(RULES), default=list(RULES), help="rules")
    chosen = parser.parse_args()
    settings = [f"rounds={chosen.rounds}", f"engine.actors={chosen.actors}"]
    settings += ["evaluation.personal_every=0", "evaluation.personal_final=false"]
    text, numbers = "# FedMLAC's pruning against wrong labels\n\n", {}
    text += f"Embedded keywords, 50 clients, ten a round, {chosen.rounds} rounds. Test accuracy of the plug-in in "
    text += "percent, mean ± SD over\nseeds; differences in points, with 95 % intervals from a paired bootstrap over "
    text += "speakers.\n"
    for share in chosen.shares:
        found: dict[str, Found] = {attack: {rule: [] for rule in chosen.only} for attack in (NOBODY, *ATTACKS)}
        for seed in chosen.seeds:
            for attack, rules in found.items():
                for rule, runs in rules.items():
                    kind = "clean" if attack == NOBODY else f"{share:g}-{attack.replace(' ', '-')}"
                    place = chosen.runs / f"seed-{seed}" / kind / rule.replace(", ", "-").replace(" ", "-")
                    runs.append(play(attack, rule, seed, share, settings, place))
        text += f"\n## {100 * share:g} % of the clients attack\n\n{table(found, chosen.rounds)}\n"
        numbers[f"{share:g}"] = {
            attack: {rule: [{**run, "counts": None} for run in runs] for rule, runs in rules.items()}
            for attack, rules in found.items()
        }
    print(text)
    if len(chosen.seeds) > 1:
        study.write("fedmlac_attackers", text, {"found": numbers}, study.command(parser, chosen), chosen.seeds)


if __name__ == "__main__":
    main()
