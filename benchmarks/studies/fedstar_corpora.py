"""FedSTAR on other classes and on real speech: what pseudo-labels are worth at equal steps, 100 rounds.

    python -m benchmarks.studies.fedstar_corpora [--only languages events digits arabic_commands arabic_commands_full]
                                                 [--seeds 0 1 2] [--arms beta] [--rounds 100] [--actors 1] [--runs DIR]

Six embedded languages and ten embedded sounds have 3 % of the clips labelled; arabic-commands (12 training speakers,
dealt to 5 clients) and FSDD (six speakers' takes, dealt to 15) have 10 %. arabic-commands-full has 40 words and ten
takes of each, with 3, 5 and 20 % of the labels and 5, 12 and 24 clients. Real speech needs FEDRAY_SPEECH, the folder
that holds arabic-commands/, arabic-commands-full/ and fsdd/. Arms and settings are those of `fedstar_long`, on embedded
keywords; nothing was chosen on these sets. Writes benchmarks/results/fedstar_corpora.md, .json and .png. The same
command resumes the study: it keeps finished runs, and takes runs whose folders are gone from the earlier page.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from yaml import safe_load

from benchmarks import study
from benchmarks.studies.fedstar_long import arms, draw, play, table


@dataclass(frozen=True)
class Corpus:
    """A corpus: labelled shares and numbers of clients, folder of real speech, and the unit of its intervals."""

    labels: tuple[float, ...]
    folder: str | None = None
    unit: str = "speaker"
    config: str | None = None  # below configs/fedstar; None: named as the corpus
    clients: tuple[int, ...] = ()  # (): as configured


CORPORA = {
    "arabic_commands": Corpus((0.1,), "arabic-commands"),
    "arabic_commands_full": Corpus(
        (0.03, 0.05, 0.2), "arabic-commands-full", config="arabic_commands", clients=(5, 12, 24)
    ),
    "digits": Corpus((0.1,), "fsdd", "utterance"),  # all of its speakers train
    "languages": Corpus((0.03,)),
    "events": Corpus((0.03,)),
}


def described(name: str, labels: float, clients: int | None) -> list[str]:
    """The corpus' data, features and task as overrides of another configuration. `clients`: None as configured."""
    corpus = CORPORA[name]
    config = study.ROOT / "configs" / "fedstar" / f"{corpus.config or name}.yaml"
    found = safe_load(config.read_text(encoding="utf-8"))
    data = found["data"] | {"labelled": {"share": labels}}
    if corpus.folder is not None:
        data["root"] = str(study.speech(corpus.folder))
    if clients is not None:
        data["clients"] = data["clients"] | {"count": clients}
    return [f"data={data}", *(f"{key}={found[key]}" for key in ("features", "task") if key in found)]


def settings(name: str) -> dict[str, tuple[float, int | None]]:
    """Title -> labelled share and number of clients, of a corpus."""
    words, corpus = name.replace("_", " "), CORPORA[name]
    found: dict[str, tuple[float, int | None]] = {}
    for labels in corpus.labels:
        for clients in corpus.clients or (None,):
            count = "" if clients is None else f" N = {clients},"
            found[f"{words},{count} L = {100 * labels:g} %"] = labels, clients
    return found


def main() -> None:
    parser = study.parser(__spec__.name, __doc__, "study-fedstar-corpora", rounds=100)
    parser.add_argument("--only", nargs="+", choices=list(CORPORA), default=list(CORPORA))
    chosen = study.chosen(parser, arms(1.0))
    parts: dict[str, study.Found] = study.page_before("fedstar_corpora", rounds=chosen.rounds).get("found", {})
    for name in chosen.only:
        for title in settings(name):
            parts[title] = played(name, title, parts.get(title, {}), chosen)
    text = f"""# FedSTAR on other corpora, {chosen.rounds} rounds

Test accuracy in percent, mean ± SD over trials. Gains are in points, over the same steps without pseudo-labels
(beta = 0) and over the supervised federation, with the 95 % interval of a paired bootstrap over speakers (for digits
over utterances, since training and test have the same speakers).
"""
    text += "".join(f"\n## {title}\n\n{table(found)}\n" for title, found in parts.items())
    print(text)
    text += "\n![Dev accuracy by round](fedstar_corpora.png)\n"
    only = [name for name in CORPORA if not parts.keys().isdisjoint(settings(name))]
    command = study.command(parser, chosen, only=only, arms=study.on_page(arms(1.0), *parts.values()))
    study.write(
        "fedstar_corpora", text, {"rounds": chosen.rounds, "found": parts}, command, study.seeds(*parts.values())
    )
    draw(parts, study.RESULTS / "fedstar_corpora.png")


def played(name: str, title: str, known: study.Found, chosen: argparse.Namespace) -> study.Found:
    """The runs of a setting of a corpus by arm."""
    labels, clients = settings(name)[title]
    found, unit = arms(labels), CORPORA[name].unit
    common = [*described(name, labels, clients), f"rounds={chosen.rounds}", f"engine.actors={chosen.actors}"]

    def place(arm: str, seed: int) -> Path:
        return Path(chosen.runs / study.folder_name(title) / f"seed-{seed}" / study.folder_name(arm))

    def one(arm: str, seed: int, to: Path) -> dict[str, Any]:
        config, overrides = found[arm]
        return play(to, config, [*common, *overrides], seed, unit)

    return study.gathered(known, found, chosen, place, one)


if __name__ == "__main__":
    main()
