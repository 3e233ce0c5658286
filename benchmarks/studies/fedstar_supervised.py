"""FedSTAR, table 3: all clips labelled, trained in one place and by federations of 5 to 30 clients; three trials.

    python -m benchmarks.studies.fedstar_supervised [--seeds 0 1 2] [--arms central] [--rounds 100] [--actors 1]
                                                    [--runs DIR]

Embedded keywords. Scores are those of the best round by dev, on new speakers. The central model trains as many rounds,
each of which is one pass over all clips, with the federations' optimiser. The same command resumes the study: it keeps
finished runs, and takes runs whose folders are gone from the earlier page.
"""

from __future__ import annotations

from benchmarks import study
from benchmarks.studies.fedstar_keywords import CLIENTS
from benchmarks.studies.fedstar_long import best_rounds, gain, play

CENTRAL = "central"


def arms(rounds: int) -> dict[str, tuple[str, list[str]]]:
    """Arm -> configuration below configs/fedstar and overrides."""
    found: dict[str, tuple[str, list[str]]] = {CENTRAL: ("baselines/central", [f"rounds={rounds}"])}
    for count in CLIENTS:
        overrides = ["data.labelled.share=1.0", f"data.clients.count={count}", f"rounds={rounds}"]
        found[f"N = {count}"] = ("baselines/supervised", overrides)
    return found


def table(found: study.Found) -> str:
    """A row per arm: its accuracy, and the change from central training with an interval over speakers."""
    rows = []
    for arm, runs in found.items():
        row = {"training": arm, "test accuracy": study.spread([run["best"]["test/accuracy"] for run in runs])}
        row["change from central"] = gain(found.get(CENTRAL, []), runs) if arm != CENTRAL else ""
        row["best rounds"] = best_rounds(runs)
        rows.append(row | {"seeds": ", ".join(str(run["seed"]) for run in runs)})
    return study.table(rows)


def main() -> None:
    parser = study.parser(__spec__.name, __doc__, "study-fedstar-supervised", rounds=100)
    chosen = study.chosen(parser, lambda options: arms(options.rounds))
    trained = arms(chosen.rounds)
    found = study.gathered(
        study.page_before("fedstar_supervised", rounds=chosen.rounds).get("found", {}), trained, chosen,
        study.place(chosen.runs),
        lambda arm, seed, to: play(to, trained[arm][0], [*trained[arm][1], f"engine.actors={chosen.actors}"], seed),
    )  # fmt: skip
    text = f"""# FedSTAR, table 3: all clips labelled, {chosen.rounds} rounds

Test accuracy in percent, mean ± SD over trials. Changes are in points, with the 95 % interval of a paired bootstrap
over speakers.

{table(found)}
"""
    command = study.command(parser, chosen, arms=study.on_page(trained, found))
    numbers = {"rounds": chosen.rounds, "found": found}
    study.write("fedstar_supervised", text, numbers, command, study.seeds(found))
    print(text)


if __name__ == "__main__":
    main()
