"""What an update gives away of the speech behind it: log-mels reconstructed from gradients, and who understands them.

    python -m benchmarks.studies.inversion [--arms 'keywords, CRNN'] [--seeds 0 1 2] [--actors N]

At the end of each run clients train on one utterance, or on four, and an attacker who knows the model, the texts and
the lengths reconstructs the log-mels (docs/privacy.md). Keywords: embedded speech, CRNN-Base. Real keywords:
arabic-commands-full, Whisper tiny's encoder, all of it or adapters alone, an eighth of the rounds. Adapters train with
Adam, whose first step has about the signs of the gradient, so the encoder does so in one arm. Sentences: speechocean up
to three seconds, a Conformer with CTC; Whisper tiny and Resemblyzer (`pip install resemblyzer`; without it the column
stays empty) hear the reconstructions as waveforms by Griffin and Lim, beside the true log-mels made audible in the same
way. Real speech needs FEDRAY_SPEECH. The same command resumes the study: it keeps finished runs, and takes runs whose
folders are gone from the earlier page.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from math import inf
from pathlib import Path
from statistics import mean
from typing import Any

import jiwer
import numpy as np
import torch

from benchmarks import outside, speechocean, study
from benchmarks.pictures import Dot, dots
from benchmarks.studies.update_leakage import COMPRESSED, DEFENCES, PLAIN
from fedray.core.privacy.likeness import MODELS
from fedray.data.features import audio
from fedray.data.features.log_mel import LogMelSettings, log_mels

CONFIG = "configs/privacy/inversion.yaml"
OF_WORDS = "configs/fedavg/encoder_keywords.yaml"
LONGEST = 3.0  # seconds of a sentence
MELS = LogMelSettings(bins=80, normalise="mean")  # of sentences
SCORES = ("test/accuracy", "dev/wer")  # the first that a run has
HEARD = 50  # recordings whose mean log-mels the attacker knows
FEWER = 8  # the number by which rounds of a pre-trained encoder are divided
ONE = ("audit.utterances=1",)
FOUR = ("audit.utterances=4", "data.clients.min_utterances=4")
WORDS = (
    "data.options={train: [manifest.tsv], label_column: keyword, text_column: null, seconds_column: seconds, "
    "split_column: official_split}",
    "data.test_share=0.34",
    "data.dev_share=null",
    "cohort={size: 4, fraction: null}",
    "model.folder=WHISPER",
    "model.seconds=1.0",
    "audit={kind: inversion, clients: 10}",
)
SENTENCES = (
    "data.corpus=tsv",
    "data.options={train: [manifest.tsv], text_column: transcript, lower_case: true, path_column: path, "
    "speaker_column: speaker, seconds_column: seconds}",
    "data.dev_share=0.05",
    "features={kind: logmel, bins: 80, normalise: mean}",
    "task={kind: recognition, tokens: characters, decode: {search: greedy}, augment: {time_masks: 0, "
    "frequency_masks: 0}}",
    "model={kind: conformer, dropout: 0}",
    "algorithm.client={lr: 0.3, batch: 5, epochs: 1, clip: 5}",
    "audit.clients=10",
)
ENCODER = "algorithm={kind: fedavg, client: {lr: 0.01, batch: 8, clip: 1, optimizer: sgd}, pretrain: {steps: 0}}"
ADAM = "algorithm={kind: fedavg, client: {lr: 1e-4, batch: 8, optimizer: adam}, pretrain: {steps: 0}}"
ADAPTERS = "algorithm={kind: fedlora, lora: {rank: 16, alpha: 32}, client: {lr: 0.001, batch: 8}, pretrain: {steps: 0}}"
ARMS = {
    "keywords, CRNN: one clip": (PLAIN, *ONE),
    "keywords, CRNN: four clips": (PLAIN, *FOUR),
    **{
        f"keywords, CRNN: one clip, {defence}": (PLAIN, *DEFENCES[defence], *ONE)
        for defence in ("dropout 0.2", COMPRESSED)
    },
    "real keywords, Whisper's encoder: one clip": (*WORDS, ENCODER, *ONE),
    "real keywords, Whisper's encoder: one clip, Adam": (*WORDS, ADAM, *ONE),
    "real keywords, Whisper's encoder: one clip, adapters alone": (*WORDS, ADAPTERS, *ONE),
    "sentences, Conformer: one sentence": (*SENTENCES, *ONE),
    "sentences, Conformer: four sentences": (*SENTENCES, *FOUR),
    "sentences, Conformer: one sentence, dropout 0.2": (*SENTENCES, *DEFENCES["dropout 0.2"], *ONE),
}


def config(arm: str) -> str:
    """The configuration of an arm."""
    return OF_WORDS if arm.startswith("real") else CONFIG


def overrides(arm: str, seed: int, chosen: argparse.Namespace) -> list[str]:
    """The overrides of a run."""
    given = list(ARMS[arm])
    if arm.startswith("sentences"):
        given.append(f"data.root={sentences(chosen.runs / 'short')}")
    elif arm.startswith("real"):
        whisper = study.speech("whisper-tiny.en")
        given = [one.replace("WHISPER", str(whisper)) for one in given]
        given.append(f"data.root={study.speech('arabic-commands-full')}")
    rounds = chosen.rounds // (FEWER if arm.startswith("real") else 1)
    return [*given, f"seed={seed}", f"data.seed={seed}", f"rounds={rounds}", f"engine.actors={chosen.actors}"]


def sentences(folder: Path) -> Path:
    """A folder with the short utterances of speechocean."""
    speechocean.write(folder, "manifest.tsv", speechocean.utterances(LONGEST))
    return folder


def play(arm: str, seed: int, place: Path, chosen: argparse.Namespace) -> dict[str, Any]:
    """What the model learns, the audit's findings and, of sentences, what outside listeners make of reconstructions."""
    results = study.run(config(arm), overrides(arm, seed, chosen), place)
    metric = next(metric for metric in SCORES if metric in results["best"])
    heard = listen(place) if arm.startswith("sentences") else {}
    found = {model: {**results["audit"][model], **heard.get(model, {})} for model in MODELS}
    return {"seed": seed, "score": {metric: results["best"][metric]}, **found}


def listen(place: Path) -> dict[str, dict[str, float]]:
    """WER of Whisper tiny in percent and, with Resemblyzer, how often a voice is recognised, by model: true and made.

    A voice is recognised if no other speaker's recording, of those under attack, is as similar as the own speaker's.
    """
    rows = {row["path"]: row for row in speechocean.utterances(LONGEST)}
    known = sorted(rows)[:: max(1, len(rows) // HEARD)]
    whole = replace(MELS, normalise="none")
    usual = np.mean([log_mels(_read(path), whole).mean(0).numpy() for path in known], axis=0)
    features = torch.load(place / "audit.pt", weights_only=True)
    true = _heard({path: both["true"] for path, both in features[MODELS[0]].items()}, rows, usual, "true")
    return {
        model: true | _heard({path: both["made"] for path, both in features[model].items()}, rows, usual, "made")
        for model in MODELS
    }


def _heard(mels: dict[str, torch.Tensor], rows: dict[str, Any], usual: np.ndarray, kind: str) -> dict[str, float]:
    """What outside listeners make of log-mels, by the paths of their recordings, which are the utterances' names."""
    waves = [outside.waveform(one.numpy(), MELS, usual) for one in mels.values()]
    texts = [_plain(text) for text in outside.heard(waves)]
    found = {f"{kind} WER": 100 * float(jiwer.wer([_plain(rows[path]["transcript"]) for path in mels], texts))}
    try:
        embedded = outside.voices(waves)
    except ImportError:
        return found
    speakers = [rows[path]["speaker"] for path in mels]
    known = {row["path"]: row for row in speechocean.utterances(inf)}
    others = outside.voices([_read(_other(path, known)).numpy() for path in mels])
    own = np.array([[one == other for other in speakers] for one in speakers])
    best = (embedded @ others.T).argmax(1)
    right = 100 * float(np.mean(own[np.arange(len(best)), best]))
    return {**found, f"{kind} voice": right, "chance of a voice": 100 * float(own.mean())}


def _plain(text: str) -> str:
    return " ".join("".join(letter if letter.isalpha() or letter == "'" else " " for letter in text.lower()).split())


def _other(path: str, rows: dict[str, Any]) -> str:
    """Another recording of the same speaker."""
    return next(name for name, row in rows.items() if row["speaker"] == rows[path]["speaker"] and name != path)


def _read(path: str) -> torch.Tensor:
    return audio.read(str(study.speech("speechocean") / path), MELS.sample_rate)


def likeness(runs: Sequence[dict[str, Any]], model: str) -> Dot:
    """The mean over seeds, and the lowest and the highest end of the seeds' intervals."""
    ones = [run[model] for run in runs]
    low, high = min(one["likeness_low"] for one in ones), max(one["likeness_high"] for one in ones)
    return mean(one["likeness"] for one in ones), low, high


def learnt(runs: Sequence[dict[str, Any]]) -> str:
    """The mean score of the best round, by which the last model may be judged."""
    (metric,) = runs[0]["score"]
    return f"{metric} {mean(run['score'][metric] for run in runs):.0f}"


def row(arm: str, model: str, found_runs: list[dict[str, Any]]) -> dict[str, object]:
    """The row of an arm's first or last model."""
    runs = [run[model] for run in found_runs]
    found: dict[str, object] = {
        "update": arm.partition(": ")[2],
        "model": model if model == MODELS[0] else f"{model} ({learnt(found_runs)})",
        "likeness": "{:.2f} [{:.2f}, {:.2f}]".format(*likeness(found_runs, model)),
        "to others": f"{mean(run['others'] for run in runs):.2f}",
        "recognised (%)": study.spread([100 * run["first"] for run in runs]),
        "chance (%)": f"{mean(100 * run['chance'] for run in runs):.1f}",
        "cosine": f"{mean(run['match'] for run in runs):.2f}",
    }
    for kind, words in (("made", "reconstruction"), ("true", "true log-mels")):
        for name, title in (("WER", "Whisper's WER"), ("voice", "voice (%)")):
            if f"{kind} {name}" in runs[0]:
                found[f"{title}, {words}"] = study.spread([run[f"{kind} {name}"] for run in runs])
    return found | {"seeds": ", ".join(str(run["seed"]) for run in found_runs)}


def draw(found: study.Found, path: Path) -> None:
    """Likeness by setup, update and model."""
    panels: dict[str, dict[str, dict[str, Dot]]] = {}
    for arm, runs in found.items():
        setup, _, update = arm.partition(": ")
        own = {f"{model} model": likeness(runs, model) for model in MODELS}
        others = {f"{model} model, to others": 3 * (mean(run[model]["others"] for run in runs),) for model in MODELS}
        panels.setdefault(setup, {})[update] = own | others
    dots(panels, "likeness to the true log-mels", path)


def main() -> None:
    parser = study.parser(__spec__.name, __doc__, "study-inversion", rounds=80)
    chosen = study.chosen(parser, ARMS)
    before = study.page_before("inversion", rounds=chosen.rounds).get("found", {})
    place = study.place(chosen.runs)
    found = study.gathered(before, ARMS, chosen, place, lambda arm, seed, to: play(arm, seed, to, chosen))
    texts = [
        f"""# Speech from updates

FedAvg, {chosen.rounds} rounds, with Whisper's encoder {chosen.rounds // FEWER}; then clients train on one or four
utterances, from the first model (random weights, or the checkpoint's) and from the last, with the score of its best
round. An attacker who knows the model, the texts and the lengths reconstructs the log-mels from what they send.

- *Likeness*: the highest correlation with the true log-mels over all shifts in time, each bin without its mean: mean
  over seeds, and in brackets the lowest and the highest end of the seeds' 95 % intervals over clients.
- *To others*: with other utterances of the same label or text, or with all where there is none.
- *Recognised*: no other utterance under attack is as similar as the true one.
- *Cosine*: of the reconstruction's gradient and the update, in the mean over tensors.

The attacker does not look for dropout's masks, and an update with error feedback is not a gradient alone.

![Likeness by update and model](inversion.png)"""
    ]
    for setup in dict.fromkeys(arm.partition(": ")[0] for arm in found):
        rows = [row(arm, model, runs) for arm, runs in found.items() if arm.startswith(setup) for model in MODELS]
        texts.append(f"## {setup[0].upper()}{setup[1:]}\n\n{study.table(rows)}")
    text = "\n\n".join(texts)
    print(text)
    draw(found, study.RESULTS / "inversion.png")
    command = study.command(parser, chosen, arms=study.on_page(ARMS, found))
    study.write("inversion", text, {"rounds": chosen.rounds, "found": found}, command, study.seeds(found))


if __name__ == "__main__":
    main()
