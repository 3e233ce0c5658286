"""Attacks against defences on embedded speech: scores under attack, a backdoor's success, cost without attackers.

    python -m benchmarks.studies.attacks [--arms '30 %' ...] [--seeds 0 1 2] [--recogniser] [--runs DIR]

50 clients with keywords, ten a round, 60 rounds (configs/attacks/keywords.yaml); with --recogniser 60 clients with
sentences, ten a round, 30 rounds (recognition.yaml), seven defences and four attacks. An arm is a defence, and the
strength of an attack by a share of the clients: "median, 30 %, noise 2". Against each defence the strength counts that
has the lowest dev score with seed FIRST and 30 % of the clients: an attacker who knows the defence would choose it. The
others run there alone. A defence takes the server's rate that is best on dev without attackers with seed TUNING. Test
scores are those of the best round by dev, of the recogniser those of the last. A backdoor's success is the share of
test utterances, other than its target, that its tone turns into the target. Writes benchmarks/results/attacks.md, .json
and .png (attacks_recogniser), which have the attacks that have run with the seeds that most attacks of their share
have. The same command resumes: it keeps finished runs, and takes runs whose folders are gone from the earlier page. All
rounds are stepped through in this process. As a control with keywords, the server trains alone, on the data that it
gives FLTrust and the reserve set.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any

from scipy.stats import hypergeom

from benchmarks import rates, study
from benchmarks.pictures import squares
from benchmarks.stepped import kept
from benchmarks.studies.attack_arms import (
    ARMS,
    ATTACKS,
    BACKDOOR,
    COHORT,
    DEFENCES,
    KEYWORDS,
    MEAN,
    NOBODY,
    RECOGNISER,
    SETTINGS,
    SHARES,
    SUCCESS,
    Run,
    Task,
    arm_of,
    arms,
    described,
    play,
)

FIRST, TUNING = 0, 7  # seeds
RATES = (0.5, 1.0, 2.0, 4.0)  # of the server
CHOOSING = 0.3  # the share at which attackers choose a strength


def settled(known: Mapping[str, Mapping[str, float]], chosen: argparse.Namespace, task: Task) -> dict[str, Any]:
    """Defence -> the dev score of each rate of the server, without attackers. `known`: those of the earlier page."""

    def tried(defence: str, lr: float) -> float:
        arm = arm_of(defence)
        print(f"{arm}, rate {lr:g}, seed {TUNING}", flush=True)
        place = chosen.runs / "tuning" / study.folder_name(f"{arm} {lr:g}")
        return float(kept(place, described(arm, lr, TUNING, task), lambda: play(arm, lr, TUNING, task))["dev"])

    wanted = {arm.partition(", ")[0] for arm in arms(task) if any(text in arm for text in chosen.arms)}
    return {**known} | {
        defence: rates.tune(RATES, slice(1, 3), partial(tried, defence), known=known.get(defence))
        for defence in SETTINGS if defence in wanted
    }  # fmt: skip


def chosen_by_attackers(found: study.Found, share: float) -> dict[str, dict[str, Sequence[Run]]]:
    """Defence -> attack -> the runs of the strength that the attacker chooses, for what has run completely.

    The seeds are those that most attacks have; runs without attackers are of the same seeds.
    """
    attacked = {of: found.get(strongest(found, *of, share) or "", []) for of in product(DEFENCES, ATTACKS)}
    usual = Counter(tuple(study.seeds({"": runs})) for runs in attacked.values() if runs)
    seeds = max(usual, key=lambda seeds: (usual[seeds], len(seeds)), default=())
    table: dict[str, dict[str, Sequence[Run]]] = {}
    for defence in SETTINGS:
        runs = {NOBODY: [run for run in found.get(arm_of(defence), []) if run["seed"] in seeds]}
        runs |= {attack: attacked.get((defence, attack), []) for attack in ATTACKS}
        complete = {attack: some for attack, some in runs.items() if some and tuple(study.seeds({"": some})) == seeds}
        if NOBODY in complete:
            table[defence] = complete
    return table


def strongest(found: study.Found, defence: str, attack: str, share: float) -> str | None:
    """The arm of the strength with the lowest score on dev with seed FIRST and the share CHOOSING; None: some lack."""
    arms = {number: arm_of(defence, attack, CHOOSING, number) for number in range(len(ATTACKS[attack]))}
    scores = {number: run["dev"] for number in arms for run in found.get(arms[number], []) if run["seed"] == FIRST}
    return arm_of(defence, attack, share, min(scores, key=scores.__getitem__)) if scores.keys() == arms.keys() else None


def played(
    before: study.Found, every: Collection[str], chosen: argparse.Namespace, play: Callable[[str, int, Path], Run]
) -> dict[str, list[Run]]:
    """The runs of the arms `every`: all strengths with seed FIRST and the share CHOOSING, and the strongest besides."""
    place, first = study.place(chosen.runs), argparse.Namespace(arms=chosen.arms, seeds=[FIRST])
    clean = [arm for arm in every if arm.endswith(NOBODY)]
    tried = [arm for arm in every if f", {100 * CHOOSING:g} %, " in arm]
    found = {**before} | study.gathered(before, [*clean, *tried], first, place, play)
    kept = {strongest(found, *of) for of in product(DEFENCES, ATTACKS, SHARES)}
    return found | study.gathered(found, [*clean, *(arm for arm in every if arm in kept)], chosen, place, play)


def tables(found: Mapping[str, Mapping[str, Sequence[Run]]], rounds: int) -> str:
    """Accuracies, then changes under attack with intervals. `found`: defence -> attack -> runs."""
    accuracies, changes = [], []
    for defence, attacks in found.items():
        clean, row, change = attacks[NOBODY], {"defence": defence}, {"defence": defence}
        for attack, runs in attacks.items():
            row[attack] = study.spread([run["test"] for run in runs])
            if attack == BACKDOOR:
                row[SUCCESS] = study.spread([run["success"] for run in runs])
            if attack != NOBODY:
                change[attack] = points(clean, runs)
        lowest = min((mean(run["test"] for run in runs), attack) for attack, runs in attacks.items())
        row["lowest"] = f"{lowest[0]:.1f} ({lowest[1]})"
        change["cost without attackers"] = "" if defence == MEAN or MEAN not in found else points(
            found[MEAN][NOBODY], clean
        )  # fmt: skip
        late = study.best_rounds([run["round"] for run in clean], [rounds] * len(clean))
        accuracies.append(row | {"best rounds, nobody": late})
        changes.append(change)
    accuracies.append({"defence": "best defence"} | best_defences(found))
    return f"{study.table(accuracies)}\n\nThe change under attack, in points:\n\n{study.table(changes)}\n"


def best_defences(found: Mapping[str, Mapping[str, Sequence[Run]]]) -> dict[str, str]:
    """Attack -> the defence with the highest mean score, and that with the lowest success of the backdoor."""
    best = {}
    for attack in (NOBODY, *ATTACKS):
        scores = {
            one: mean(run["test"] for run in attacks[attack]) for one, attacks in found.items() if attack in attacks
        }
        best |= {attack: max(scores, key=scores.__getitem__)} if scores else {}
    fooled = {one: mean(run["success"] for run in of[BACKDOOR]) for one, of in found.items() if BACKDOOR in of}
    return best | ({SUCCESS: min(fooled, key=fooled.__getitem__)} if fooled else {})


def about_share(share: float, seeds: Sequence[int], task: Task) -> str:
    """The seeds, and how many rounds have more attackers than a defence that assumes 30 % expects, in words."""
    attackers, numbers = round(share * task.clients), ", ".join(map(str, seeds))
    more, half = (round(task.rounds * hypergeom.sf(most, task.clients, attackers, COHORT)) for most in (3, 4))
    text = (
        f"Seeds: {numbers}. {attackers} of {task.clients} clients attack. By chance more than three of a round's ten\n"
    )
    text += f"do in {more} of {task.rounds} rounds"
    if not half:
        return f"{text}."
    return f"{text}, and at least five in {half}: then no rule that trusts the majority can hold."


def draw(found: Mapping[float, Mapping[str, Mapping[str, Sequence[Run]]]], path: Path) -> None:
    """A panel for each share of attackers: the mean score of a defence under an attack. `found`: share -> `tables`'."""
    panels = {
        f"{100 * share:g} % of the clients attack": {
            defence: {attack: mean(run["test"] for run in runs) for attack, runs in attacks.items()}
            | ({SUCCESS: mean(run["success"] for run in attacks[BACKDOOR])} if BACKDOOR in attacks else {})
            for defence, attacks in table.items()
        }
        for share, table in found.items()
    }
    filled = {column for panel in panels.values() for row in panel.values() for column in row}
    squares(panels, [column for column in (NOBODY, *ATTACKS, SUCCESS) if column in filled], {SUCCESS}, path)


def points(before: Sequence[Run], after: Sequence[Run]) -> str:
    counts = ([study.unpacked(run["counts"]) for run in runs] for runs in (before, after))
    return str(study.change(*counts, "points"))


def main() -> None:
    parser = study.parser(__spec__.name, __doc__, "study-attacks")
    parser.add_argument("--recogniser", action="store_true", help="attack the recogniser")
    chosen = study.chosen(parser, ARMS)
    task, page = (RECOGNISER, "attacks_recogniser") if chosen.recogniser else (KEYWORDS, "attacks")
    chosen.runs /= page
    before = study.page_before(page, rounds=task.rounds, rates=list(RATES))
    tuned = settled(before.get("tuned", {}), chosen, task)

    def one(arm: str, seed: int, place: Path) -> Run:
        lr = rates.best_of(tuned[arm.partition(", ")[0]])
        return kept(place, described(arm, lr, seed, task), lambda: play(arm, lr, seed, task))

    found = played(before.get("found", {}), arms(task), chosen, one)
    text = f"""# Attacks against defences

{task.about}
{task.rounds} rounds at a falling rate, mean ± SD over seeds. Of each attack's strengths, the one counts with which
{100 * CHOOSING:g} % of the clients hurt a defence most on dev of seed {FIRST}. `its success`: utterances that the
backdoor's tone turns into its target. Differences have 95 % intervals from a paired bootstrap over speakers. Empty
cells have not run yet.
"""
    if starts := [run["start"] for run in found.get(arm_of(MEAN), []) if "start" in run]:
        text += f"\nThe seed model has {study.spread(starts)}.\n"
    by_share = {share: chosen_by_attackers(found, share) for share in SHARES}
    by_share = {
        share: table for share, table in by_share.items() if any(len(attacks) > 1 for attacks in table.values())
    }
    if by_share:
        text += f"\n![Scores by defence and attack]({page}.png)\n"
        draw(by_share, study.RESULTS / f"{page}.png")
    for share, table in by_share.items():
        text += (
            f"\n## {100 * share:g} % of the clients attack\n\n"
            f"{about_share(share, study.seeds(*table.values()), task)}\n\n{tables(table, task.rounds)}"
        )
    text += f"\n## The server's rate, by dev of seed {TUNING} without attackers\n\n{rates.table(RATES, tuned)}\n"
    print(text)
    command = study.command(parser, chosen)
    numbers = {"rounds": task.rounds, "rates": RATES, "tuned": tuned, "found": found}
    study.write(page, text, numbers, command, study.seeds(found))


if __name__ == "__main__":
    main()
