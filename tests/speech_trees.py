"""Small folder trees in the official layouts of corpora of transcribed and translated speech."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

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


# ---- MuST-C, English to Chinese: two training talks, listed out of time order, and one talk for each other split

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


# ---- GigaSpeech: three recordings of two categories, and one each for DEV and TEST


def segment(sid: str, begin: float, text: str, *subsets: str) -> dict[str, Any]:
    braces = [f"{{{subset}}}" for subset in subsets]
    return {
        "sid": sid,
        "speaker": "N/A",
        "begin_time": begin,
        "end_time": begin + 0.5,
        "subsets": braces,
        "text_tn": text,
    }


def recording(aid: str, category: str, *segments: dict[str, Any]) -> dict[str, Any]:
    subsets = sorted({subset for segment in segments for subset in segment["subsets"]})
    audio = {"aid": aid, "title": "T", "path": f"audio/podcast/P0001/{aid}.opus", "category": category}
    return audio | {"subsets": subsets, "segments": list(segments)}


def gigaspeech_list() -> dict[str, Any]:
    audios = [
        recording(
            "POD1",
            "Howto and Style",
            segment("POD1_S0", 0.0, "WELL <COMMA> HOW-TO UH <QUESTIONMARK>", "XL", "L"),
            segment("POD1_S1", 1.5, "<MUSIC>", "XL"),
            segment("POD1_S2", 2.0, "ONLY XL", "XL"),
        ),
        recording("POD2", "Howto and Style", segment("POD2_S0", 0.0, "STYLE <PERIOD>", "XL", "L")),
        recording("YOU3", "Science and Technology", segment("YOU3_S0", 0.25, "ATOMS", "XL", "L")),
        recording("YOU4", "Crime", segment("YOU4_S0", 0.0, "DEV SET", "DEV")),
        recording(
            "YOU5", "Crime", segment("YOU5_S0", 0.0, "TEST SET", "TEST"), segment("YOU5_S1", 1.0, "<SIL>", "TEST")
        ),
    ]
    return {"dataset": "GigaSpeech", "language": "EN", "version": "v1.0.0", "audios": audios}


def gigaspeech(root: Path) -> Path:
    content = gigaspeech_list()
    for audio in content["audios"]:
        path = root / "GigaSpeech" / audio["path"]
        path.parent.mkdir(parents=True, exist_ok=True)
        soundfile.write(path, np.zeros(3 * 16000, np.float32), 16000, format="OGG", subtype="OPUS")
    write(root / "GigaSpeech" / "GigaSpeech.json", json.dumps(content, indent=2))
    return root
