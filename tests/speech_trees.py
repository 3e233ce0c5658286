"""Small trees in the official layouts of corpora of transcribed and translated speech."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import soundfile

from tests.trees import tone, write


def client(name: str) -> str:
    return hashlib.sha512(name.encode()).hexdigest()


def mp3(path: Path, seconds: float) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    tone = 0.3 * np.sin(2 * np.pi * 200 * np.arange(round(seconds * 48000)) / 48000)
    soundfile.write(path, tone, 48000, format="MP3", subtype="MPEG_LAYER_III")


def table(home: Path, name: str, header: str, rows: list[dict[str, str]]) -> None:
    lines = ["\t".join(row.get(column, "") for column in header.split()) for row in rows]
    write(home / f"{name}.tsv", "\n".join(["\t".join(header.split()), *lines]) + "\n")


# ---- CoVoST 2, English to Chinese: 24 clips by speakers of three accents, and one of each wrong kind

COVOST_COLUMNS = "client_id path sentence up_votes down_votes age gender accent"  # of Common Voice 4
ACCENTS = {"ann": "england", "bob": "england", "cat": "australia", "dan": "australia", "eve": "indian", "fay": ""}


def covost2(root: Path) -> Path:
    home, rows, pairs = root / "en", [], []
    mp3(home / "clips" / "any.mp3", 0.3)
    for speaker, accent in ACCENTS.items():
        for clip in range(4):
            path = f"common_voice_en_{speaker}{clip}.mp3"
            (home / "clips" / path).hardlink_to(home / "clips" / "any.mp3")
            rows.append({"client_id": client(speaker), "path": path, "sentence": f"It is {clip}.", "accent": accent})
            split = ("train", "train_covost", "dev", "test")[clip]
            pairs.append({"path": path, "translation": f"是{clip}。", "split": split})
    rows[0]["sentence"] = r'\"Yes,\" she said. "No'
    pairs[1]["translation"] = r"\"好\"，N\\A"
    for name in ("gone", "19817845"):
        rows.append(rows[0] | {"path": f"common_voice_en_{name}.mp3"})
        pairs.append(pairs[0] | {"path": f"common_voice_en_{name}.mp3"})
    (home / "clips" / "common_voice_en_19817845.mp3").hardlink_to(home / "clips" / "any.mp3")
    pairs.append(pairs[0] | {"path": "common_voice_en_unknown.mp3"})
    rows.append(rows[0] | {"path": "common_voice_en_untranslated.mp3"})
    table(home, "validated", COVOST_COLUMNS, rows)
    table(home, "covost_v2.en_zh-CN", "path translation split", pairs)
    return root


# ---- MuST-C, English to Chinese: two talks that train, whose list is not in the order of time, and one for each other

TALKS = {"train": (1, 767), "dev": (2,), "tst-COMMON": (3,), "tst-HE": (4,)}


def must_line(talk: int, offset: str, duration: str = "0.250000", more: str = "rW: 9, uW: 0, ") -> str:
    return f"- {{duration: {duration}, offset: {offset}, {more}speaker_id: spk.{talk}, wav: ted_{talk}.wav}}\n"


def mustc(root: Path) -> Path:
    for split, talks in TALKS.items():
        folder = root / "en-zh" / "data" / split
        entries = [must_line(talk, offset) for talk in talks for offset in ("10.500000", "9.500000", "0.000000")]
        write(folder / "txt" / f"{split}.yaml", "".join(entries))
        for language, text in (("en", "Sentence"), ("zh", "句子")):
            lines = [f"{text} {row}\n" for row in range(len(entries))]
            write(folder / "txt" / f"{split}.{language}", "".join(lines))
        for talk in talks:
            tone(folder / "wav" / f"ted_{talk}.wav", 11.0)
    return root
