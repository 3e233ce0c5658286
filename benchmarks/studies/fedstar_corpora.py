"""FedSTAR on other classes and on real speech: what pseudo-labels are worth at equal steps, 100 rounds.

    python -m benchmarks.studies.fedstar_corpora [--only languages events digits arabic_commands] [--seeds 0 1 2]
                                                 [--arms beta] [--rounds 100] [--actors 1] [--runs DIR]

Six embedded languages and ten embedded sounds have 3 % of the clips labelled; arabic-commands (12 training speakers,
dealt to 5 clients) and FSDD (six speakers' takes, dealt to 15) have 10 %. Real speech needs FEDRAY_SPEECH, the folder
that holds arabic-commands/ and fsdd/. Arms and settings are those of `fedstar_long`, on embedded keywords; nothing was
chosen on these sets. Writes benchmarks/results/fedstar_corpora.md, .json and .png. The same command resumes the study:
it keeps finished runs, and takes runs whose folders are gone from the earlier page.
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
    """A corpus: its labelled share, its folder of real speech, and the unit that its intervals are drawn over."""

    labels: float
    folder: str | None = None
    unit: str = "speaker"


CORPORA = {  # configuration: corpus
    "arabic_commands": Corpus(0.1, "arabic-commands"),
    "digits": Corpus(0.1, "fsdd", "utterance"),  # all of its speakers train
    "languages": Corpus(0.03),
    "events": Corpus(0.03),
}


def described(name: str) -> list[str]:
    """The corpus' data, features and task as overrides of another configuration."""
    corpus, config = CORPORA[name], study.ROOT / "configs" / "fedstar" / f"{name}.yaml"
    found = safe_load(config.read_text(encoding="utf-8"))
    data = found["data"] | {"labelled": {"share": corpus.labels}}
    if corpus.folder is not None:
        data["root"] = str(study.speech(corpus.folder))
    return [f"data={data}", *(f"{key}={found[key]}" for key in ("features", "task") if key in found)]


def main() -> None:
    parser = study.parser(__spec__.name, __doc__, "study-fedstar-corpora", rounds=100)
    parser.add_argument("--only", nargs="+", choices=list(CORPORA), default=list(CORPORA))
    chosen = study.chosen(parser, arms(1.0))
    parts: dict[str, study.Found] = study.page_before("fedstar_corpora", rounds=chosen.rounds).get("found", {})
    for name in chosen.only:
        title = f"{name.replace('_', ' ')}, L = {100 * CORPORA[name].labels:g} %"
        parts[title] = played(name, parts.get(title, {}), chosen)
    text = f"""# FedSTAR on other corpora, {chosen.rounds} rounds

Test accuracy in percent, mean ± SD over trials. Gains are in points, over the same steps without pseudo-labels
(beta = 0) and over the supervised federation, with the 95 % interval of a paired bootstrap over speakers (for digits
over utterances, since training and test have the same speakers).
"""
    text += "".join(f"\n## {title}\n\n{table(found)}\n" for title, found in parts.items())
    print(text)
    text += "\n![Dev accuracy by round](fedstar_corpora.png)\n"
    only = [name for name in CORPORA if any(title.startswith(name.replace("_", " ")) for title in parts)]
    command = study.command(parser, chosen, only=only, arms=study.on_page(arms(1.0), *parts.values()))
    study.write(
        "fedstar_corpora", text, {"rounds": chosen.rounds, "found": parts}, command, study.seeds(*parts.values())
    )
    draw(parts, study.RESULTS / "fedstar_corpora.png")


def played(name: str, known: study.Found, chosen: argparse.Namespace) -> study.Found:
    """The runs on a corpus by arm."""
    corpus, data = CORPORA[name], described(name)
    found = arms(corpus.labels)
    common = [*data, f"rounds={chosen.rounds}", f"engine.actors={chosen.actors}"]

    def place(arm: str, seed: int) -> Path:
        return Path(chosen.runs / name / f"seed-{seed}" / study.folder_name(arm))

    def one(arm: str, seed: int, to: Path) -> dict[str, Any]:
        config, overrides = found[arm]
        return play(to, config, [*common, *overrides], seed, corpus.unit)

    return study.gathered(known, found, chosen, place, one)


if __name__ == "__main__":
    main()
