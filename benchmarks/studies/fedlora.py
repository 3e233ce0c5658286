"""FedLoRA and FedMem on embedded dialects and domains and on real speech: tables 1, 3, 4 and 5 of Du et al.

    python -m benchmarks.studies.fedlora [--only dialects attention large translation domains digits speechocean]
                                         [--arms FedLoRA FedAvg] [--seeds 0 1 2]

Each method trains a model; then every client decodes with the model alone and with its memory. P-S2T is the server's
seed model. C-S2T trains on all clients' speech in one place, with all weights or with adapters; FedAvg and FedLoRA
train on the clients. `attention` is the dialects with a decoder, `large` the dialects with nine times the parameters,
`translation` the dialects translated into Chinese. Both C-S2T have their own learning rates, the best of three on dev
by greedy search, with cosine decay. After training, six clients of new domains join the models of `domains`, and three
of new dialects those of `translation`. Each seed draws new dialects and domains; each split of the digits has three of
the six speakers as clients. Digits and speechocean need FEDRAY_SPEECH. The pages are
benchmarks/results/fedlora_<corpus>.md, with plain means over clients and pooled scores. The same command resumes the
study: it keeps finished runs, and takes runs whose folders are gone from the earlier page. --arms always includes
P-S2T.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks import study
from benchmarks.studies.fedlora_page import SERVER, counts_of, packed, page, trained
from benchmarks.studies.fednst_digits import SERVERS
from benchmarks.studies.fednst_digits import drawn as of_split
from fedray import experiment
from fedray.core.metrics import ALONE
from fedray.report.discover import find

CENTRAL = ["data.clients={by: iid, count: 1}", "engine.lanes=1"]
METHODS: dict[str, tuple[bool, list[str]] | None] = {  # whether the whole model trains, and overrides
    SERVER: None,  # first: the others start from its model
    "C-S2T full": (True, CENTRAL),
    "FedAvg": (True, []),
    "C-S2T LoRA": (False, CENTRAL),
    "FedLoRA": (False, []),
}


@dataclass(frozen=True)
class Corpus:
    """The configurations of FedLoRA and FedMem for a corpus, and how it differs from other corpora."""

    trained: str
    decoded: tuple[str, ...]
    speech: str | None = None  # the folder of real speech
    rate: str = "1e-3"  # for all weights; that for adapters is in the configuration
    score: str = "wer"  # in personal.tsv


CORPORA = {
    "dialects": Corpus("embedded", ("embedded",)),
    # the paper's: a decoder, beams, states as keys
    "attention": Corpus(
        "ablations/attention",
        ("ablations/attention", "ablations/attention_radius", "ablations/attention_alone"),
        score="wer_lm",
    ),
    "large": Corpus("ablations/large", ("ablations/large",)),  # nine times the parameters
    "translation": Corpus(
        "embedded_translation", ("embedded_translation", "ablations/translation_joining"), score="bleu_beam"
    ),
    "domains": Corpus("embedded_domains", ("embedded_domains", "ablations/joining"), rate="3e-3"),
    "digits": Corpus("digits", ("digits",), "fsdd"),
    "speechocean": Corpus("speechocean", ("speechocean",), "speechocean-mini"),
}
# A client with all data takes as many steps a round as all clients together. Its rate falls, and is the best
# on dev of these parts of FedAvg's or FedLoRA's rate.
CENTRAL_RATES = (0.25, 0.5, 1.0)
DECAY = "algorithm.client.decay=cosine"


def drawn(corpus: str, seed: int) -> list[str]:
    """Overrides for a seed: it draws the data or, for digits, the server's speakers."""
    found, speech = [f"seed={seed}", f"data.seed={seed}"], CORPORA[corpus].speech
    if corpus == "digits":
        return found + of_split(seed)
    return found + ([f"data.root={study.speech(speech)}"] if speech else [])


def play(corpus: str, method: str, seed: int, place: Path) -> dict[str, Any]:
    """Traffic and size of the training, and the clients' personal test scores by configuration of FedMem and client."""
    chosen, common, how = CORPORA[corpus], drawn(corpus, seed), METHODS[method]
    found: dict[str, Any] = {"seed": seed, "scores": {}, "counts": {}}
    model: list[str] = []
    if how is not None:
        whole, overrides = how
        if whole:
            # without adapters: FedAvg
            overrides = ["algorithm.lora.rank=0", f"algorithm.client.lr={chosen.rate}", *overrides]
        server = place.with_name(study.folder_name(SERVER))
        if not (server / chosen.decoded[0] / "results.json").exists():  # the earlier page has it from another machine
            play(corpus, SERVER, seed, server)
        model = start_from(server / chosen.decoded[0])
        config, folder = f"configs/fedlora/{chosen.trained}.yaml", place / "training"
        tried = {folder: [*common, *model, *overrides]}
        if method.startswith("C-S2T"):
            adapters = experiment.load(study.ROOT / config)[0].algorithm.settings.client.lr
            rate = float(chosen.rate) if whole else adapters
            tried = {
                place / f"training-{part:g}": [*tried[folder], DECAY, f"algorithm.client.lr={part * rate:g}"]
                for part in CENTRAL_RATES
            }
        played = {where: study.run(config, settings, where) for where, settings in tried.items()}
        error, dev = chosen.score.startswith("wer"), f"dev/{chosen.score.partition('_')[0]}"
        folder = min(played, key=lambda where: played[where]["best"][dev] * (1 if error else -1))
        results, rows = played[folder], study.rounds(folder)
        model = start_from(folder)
        state = torch.load(folder / "model" / "model.pt", weights_only=True)
        sent = [
            tensor for name, tensor in state.items() if tensor.is_floating_point() and not name.endswith(".pe")
        ]  # without tables of positions
        found |= trained(results, rows, sum(tensor.numel() for tensor in sent))
    for config in chosen.decoded:
        predicted = "evaluation.personal_predictions=true"
        study.run(f"configs/fedmem/{config}.yaml", [*common, *model, predicted], place / config)
        model = model or start_from(place / config)
        (run,) = find([place / config])
        alone, memory = (run.of_clients(f"personal/test/{name}") for name in (chosen.score + ALONE, chosen.score))
        found["scores"][config] = {
            client: {"alone": alone[client], "memory": score} for client, score in memory.items()
        }
        found["counts"][config] = packed(counts_of(place / config, chosen.score))
    return found


def on_page(corpus: str) -> study.Found:
    """The runs of the earlier page, except those of an earlier version, which lack counts that the new page needs."""
    found: study.Found = study.page_before(f"fedlora_{corpus}").get("found", {})
    needed = set(CORPORA[corpus].decoded)
    whole = {
        method: [run for run in runs if "seed" in run and needed <= (run.get("counts") or {}).keys()]
        for method, runs in found.items()
    }
    if lost := sum(map(len, found.values())) - sum(map(len, whole.values())):
        print(f"fedlora_{corpus}.json has {lost} runs of an earlier version of the study: the new page is without them")
    return whole


def start_from(run: Path) -> list[str]:
    return [f"model.init={run / 'model' / 'model.pt'}", "algorithm.pretrain.steps=0"]


def main() -> None:
    parser = study.parser(__spec__.name, __doc__, "study-fedlora")
    parser.set_defaults(seeds=None)  # three; for digits, all splits
    parser.add_argument("--only", nargs="+", choices=list(CORPORA), default=list(CORPORA))
    chosen = study.chosen(parser, METHODS)
    for corpus in chosen.only:
        seeds = chosen.seeds or range(len(SERVERS) if corpus == "digits" else 3)
        found = study.gathered(
            on_page(corpus), METHODS, argparse.Namespace(seeds=seeds, arms=[*chosen.arms, SERVER]),
            lambda method, seed, corpus=corpus: chosen.runs / corpus / f"seed-{seed}" / study.folder_name(method),
            lambda method, seed, place, corpus=corpus: play(corpus, method, seed, place),
        )  # fmt: skip
        error = CORPORA[corpus].score.startswith("wer")
        score = "WER in percent" if error else "BLEU (beam search)"
        text = f"# FedLoRA and FedMem: {corpus}\n\nTest {score} for each client, without and with its memory. "
        text += "Clients choose k, lambda and temperature on dev.\nAvg is the plain mean over clients, mean ± SD over "
        text += "seeds; pooled is the score of all clients' utterances together,\nwith its 95 % interval over "
        text += "speakers.\n\n"
        titles = {config: f"configs/fedmem/{config}.yaml" for config in CORPORA[corpus].decoded}
        text += page(found, titles, error)
        command = study.command(parser, chosen, only=[corpus], arms=study.on_page(METHODS, found))
        study.write(f"fedlora_{corpus}", text, {"found": found}, command, study.seeds(found))
        print(text)


if __name__ == "__main__":
    main()
