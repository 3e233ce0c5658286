"""Corpora in their official layouts with something missing or damaged: CoVoST 2, MuST-C, GigaSpeech."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests import speech_trees
from tests.bad_input.case import Case

CONFIG = """\
name: case
data: {{corpus: {kind}, root: corpus, server: {{share: 0.3}}{options}}}
model: {{kind: conformer, d_model: 8, layers: 1, heads: 1, ffn: 8, kernel: 3}}
algorithm: {{kind: fedavg, pretrain: {{steps: 0}}}}
cohort: {{size: 1}}
"""
COVOST = "en/covost_v2.en_zh-CN.tsv"
MUSTC = "en-zh/data/train/txt/train"
GIGASPEECH = "GigaSpeech/GigaSpeech.json"


def tree(
    kind: str, change: Callable[[Path], object] = lambda corpus: None, options: str = ""
) -> Callable[[Path], object]:
    """Write the small tree of a corpus, damage it with `change`, and write a configuration for it."""

    def make(folder: Path) -> None:
        place = folder / "corpus"
        getattr(speech_trees, kind)(place)
        change(place)
        given = f", options: {options}" if options else ""
        (folder / "config.yaml").write_text(CONFIG.format(kind=kind, options=given), encoding="utf-8")

    return make


def without(name: str) -> Callable[[Path], object]:
    return lambda corpus: (corpus / name).unlink()


def replaced(name: str, old: str, new: str) -> Callable[[Path], object]:
    """Replace the first occurrence of `old` in a file."""

    def change(corpus: Path) -> None:
        text = (corpus / name).read_text(encoding="utf-8")
        assert old in text, f"{name} does not hold {old!r}"
        (corpus / name).write_text(text.replace(old, new, 1), encoding="utf-8")

    return change


def cut(name: str, characters: int) -> Callable[[Path], object]:
    def change(corpus: Path) -> None:
        (corpus / name).write_text((corpus / name).read_text(encoding="utf-8")[:characters], encoding="utf-8")

    return change


CASES = [
    Case("covost2: no list of the pair", ("en/covost_v2.en_zh-CN.tsv is missing", "unpack"),
         tree("covost2", without(COVOST)), data=True),
    Case("covost2: another language", "holds no language 'fr'",
         tree("covost2", options="{source: fr}"), data=True),
    Case("covost2: a column is missing", ("covost_v2.en_zh-CN.tsv", "translation"),
         tree("covost2", replaced(COVOST, "translation", "other")), data=True),
    Case("covost2: no accents", "set data.options.accents", tree("covost2", options="{held_out: 2}")),
    Case("mustc: another language", ("en-de/data/train is missing", "unpack"),
         tree("mustc", options="{target: de}"), data=True),
    Case("mustc: an offset is no number", ("train.yaml:1", "offset"),
         tree("mustc", replaced(f"{MUSTC}.yaml", "10.500000", "ten")), data=True),
    Case("mustc: a line is missing", ("train.zh", "train.yaml"),
         tree("mustc", replaced(f"{MUSTC}.zh", "句子 0\n", "")), data=True),
    Case("mustc: no talk", "ted_1.wav", tree("mustc", without("en-zh/data/train/wav/ted_1.wav")), data=True),
    Case("gigaspeech: the list is cut short", ("GigaSpeech.json", "is not JSON"),
         tree("gigaspeech", cut(GIGASPEECH, 900)), data=True),
    Case("gigaspeech: an end before its beginning", ("POD1: POD1_S0", "end_time must come after begin_time"),
         tree("gigaspeech", replaced(GIGASPEECH, '"end_time": 0.5', '"end_time": -1')), data=True),
    Case("gigaspeech: an unknown category", "no category begins with 'opera'",
         tree("gigaspeech", options="{categories: [opera]}"), data=True),
    Case("gigaspeech: no recording", ("POD1.opus", "download the recordings"),
         tree("gigaspeech", without("GigaSpeech/audio/podcast/P0001/POD1.opus"), "{train: XL}"), data=True),
]  # fmt: skip
