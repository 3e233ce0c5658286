"""Small folder trees in the official layouts of corpora, and functions that read and write their files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import soundfile

from fedray.core.parallel import serial
from fedray.data.corpora import CORPORA
from fedray.data.corpora.official import speech_commands_clips as commands
from fedray.data.corpora.official import urbansound8k as urban
from fedray.data.manifest import Manifest

LFS_STUB = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 60000\n"


def read(
    kind: str, root: Path | None, cache: Path = Path("unused"), seed: int = 0, **options: object
) -> dict[str, Manifest]:
    return CORPORA[kind](**options).read(root, seed, cache, serial)


def tone(path: Path, seconds: float = 0.5, rate: int = 16000, pitch: float = 200.0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, 0.3 * np.sin(2 * np.pi * pitch * np.arange(round(seconds * rate)) / rate), rate)
    return path


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


# ---- Speech Commands: 35 words, each by the same five speakers

# Real speakers: DEV is in validation_list.txt, TEST is in testing_list.txt, and those of TRAIN are in neither.
DEV, TEST = "a69b9b3e", "bb05582b"
TRAIN = ("004ae714", "0132a06d", "00f0204f")
TAKES = {DEV: 1, TEST: 1, TRAIN[0]: 3, TRAIN[1]: 1, TRAIN[2]: 1}  # of every word
NOISES = {"white_noise": 12.0, "running_tap": 15.0}  # seconds


def speech_commands(root: Path) -> Path:
    home = root / "SpeechCommands" / "speech_commands_v0.02"
    clip = tone(root / "clip.wav", 0.25)
    for word in commands.WORDS:
        (home / word).mkdir(parents=True)
        for speaker, takes in TAKES.items():
            for take in range(takes):
                shutil.copyfile(clip, home / word / f"{speaker}_nohash_{take}.wav")
    for name, seconds in NOISES.items():
        tone(home / "_background_noise_" / f"{name}.wav", seconds)
    write(home / "_background_noise_" / "README.md", "noise")
    write(home / "LICENSE", "CC BY 4.0")
    write(home / "yes" / ".DS_Store", "")
    write(home / "validation_list.txt", "".join(f"{word}/{DEV}_nohash_0.wav\n" for word in commands.WORDS))
    write(home / "testing_list.txt", "".join(f"{word}/{TEST}_nohash_0.wav\n" for word in commands.WORDS))
    return root


# ---- UrbanSound8K: two recordings per fold, with two cuts each

URBAN_HEADER = "slice_file_name,fsID,start,end,salience,fold,classID,class\n"


def urban_line(name: str, fold: int | str) -> str:
    recording, code = name.split("-")[:2]
    return f"{name},{recording},0.0,0.25,1,{fold},{code},{urban.CLASSES[int(code)]}\n"


def urbansound8k(root: Path) -> Path:
    home, lines = root / "UrbanSound8K", []
    for fold in range(1, 11):
        for recording, code in ((1000 + fold, fold - 1), (2000 + fold, (fold + 4) % 10)):
            for cut in range(2):
                lines.append(urban_line(f"{recording}-{code}-0-{cut}.wav", fold))
                tone(home / "audio" / f"fold{fold}" / f"{recording}-{code}-0-{cut}.wav", 0.25, 8000)
    write(home / "audio" / "fold1" / ".DS_Store", "")
    write(home / "UrbanSound8K_README.txt", "")
    write(home / "metadata" / "UrbanSound8K.csv", URBAN_HEADER + "".join(lines))
    return root


# ---- CREMA-D: 91 actors with two recordings each, and a few more for some

VOTES_HEADER = '"","FileName","VoiceVote","VoiceLevel","FaceVote","FaceLevel","MultiModalVote","MultiModalLevel"\n'
ACTORS = range(1001, 1092)
VOTES = {f"{actor}_{kind}_XX": vote for actor in ACTORS for kind, vote in (("DFA_ANG", "A"), ("IOM_NEU", "N"))}
VOTES |= {
    "1001_IEO_DIS_LO": "D",
    "1001_IEO_FEA_HI": "F",
    "1002_IEO_SAD_MD": "N:S",
    "1040_ITH_SAD_XX": "S",
    "1076_MTI_SAD_XX": "S",
}


def vote_table(votes: dict[str, str]) -> str:
    rows = (
        f'"{row}","{name}","N",50.5,"A",60,"{vote}",70.1\n' for row, (name, vote) in enumerate(votes.items(), start=1)
    )
    return VOTES_HEADER + "".join(rows)


def crema_d(root: Path) -> Path:
    home, clip = root / "CREMA-D", tone(root / "clip.wav", 0.25)
    (home / "AudioWAV").mkdir(parents=True)
    for name in VOTES:
        shutil.copyfile(clip, home / "AudioWAV" / f"{name}.wav")
    (home / "AudioWAV" / "1040_ITH_SAD_XX.wav").rename(home / "AudioWAV" / "1040_ITH_SAD_X.wav")  # as it is distributed
    write(home / "AudioWAV" / "1076_MTI_SAD_XX.wav", "RIFF")
    write(home / "AudioWAV" / ".DS_Store", "")
    write(home / "processedResults" / "summaryTable.csv", vote_table(VOTES))
    return root


# ---- IEMOCAP: five sessions with an improvised and a scripted dialogue each

IMPRO = {"F000": "neu", "F001": "exc", "M000": "ang", "M001": "fru"}
SCRIPT = {"F000": "hap", "M000": "sad", "M001": "xxx"}
OTHER_RATINGS = "C-E2:\tNeutral;\t()\nC-F1:\tNeutral;\t()\nA-E3:\tval 3; act 2; dom  2;\t()\n\n"


def rating(turn: str, emotion: str) -> str:
    return f"[6.2901 - 8.2357]\t{turn}\t{emotion}\t[2.5000, 2.5000, 2.5000]\n"


def iemocap(root: Path) -> Path:
    home, clip = root / "IEMOCAP_full_release", tone(root / "clip.wav", 0.25)
    for session in range(1, 6):
        marked = f"Ses0{session}{'F' if session < 3 else 'M'}"  # the actor with the markers, whoever talks
        ratings = home / f"Session{session}" / "dialog" / "EmoEvaluation"
        for dialog, turns in {f"{marked}_impro01": IMPRO, f"{marked}_script01_1b": SCRIPT}.items():
            lines = ["% [START_TIME - END_TIME] TURN_NAME EMOTION [V, A, D]\n\n"]
            sounds = home / f"Session{session}" / "sentences" / "wav" / dialog
            sounds.mkdir(parents=True)
            write(sounds / f"._{dialog}_F000.wav", "")
            for turn, emotion in turns.items():
                shutil.copyfile(clip, sounds / f"{dialog}_{turn}.wav")
                lines.append(rating(f"{dialog}_{turn}", emotion) + OTHER_RATINGS)
            write(ratings / f"{dialog}.txt", "".join(lines))
            (ratings / f"._{dialog}.txt").write_bytes(b"\0\5\xff")
            write(ratings / "Categorical" / f"{dialog}_e1_cat.txt", f"{dialog}_F000 :Anger; ()\n")
    return root


# ---- VoxForge: a user's two submissions and an anonymous one for each language, and every wrong kind in English

README = "user  name: somebody\n\nSpeaker Characteristics:\n\ngender:Female\nAge range : Adult\n"
PROMPTED = {"a0001": "FIRST SENTENCE", "a0002": "Second one,  here"}


def submission(
    folder: Path, prompts: dict[str, str] = PROMPTED, kind: str = "wav", sounds: tuple[str, ...] = tuple(PROMPTED)
) -> Path:
    write(folder / "etc" / "PROMPTS", "".join(f"{folder.name}/mfc/{stem} {text}\n" for stem, text in prompts.items()))
    write(folder / "etc" / "README", README)
    write(folder / "LICENSE", "GPL")
    for stem in sounds:
        tone(folder / kind / f"{stem}.{kind}", 0.25)
    return folder


def voxforge(root: Path) -> Path:
    for language in ("en", "es", "fr", "de", "ru", "it"):
        home = root / language / ("Trunk/Audio/Main/16kHz_16bit" if language == "ru" else "")
        submission(home / f"anna{language}-20120412-hge")
        submission(home / f"anna{language}-20130101-xyz", kind="flac")
        submission(home / "anonymous-20090101-abc" if language == "en" else home / f"anonymous-20090101-{language}a")
    home = root / "en"
    (submission(home / "p-20120412-aaa") / "etc" / "PROMPTS").unlink()
    (submission(home / "r-20120412-aaa") / "etc" / "README").unlink()
    shutil.rmtree(submission(home / "w-20120412-aaa") / "wav")
    (submission(home / "l-20120412-aaa") / "etc" / "PROMPTS").write_bytes("l/a0001 SÍ\n".encode("latin-1"))
    odd = submission(
        home / "odd-20120412-aaa",
        {"a0001": "ONE", "a0003": "THREE", "a0004": "", "a0005": "FIVE"},
        sounds=("a0001", "a0002", "a0004"),
    )
    (odd / "wav" / "a0005.wav").write_bytes(b"")
    write(home / "packed-20120412-aaa.tgz", "")
    write(home / "odd-20120412-aaa.tgz", "")
    write(home / "index.html", "")
    return root


# ---- Ambient Acoustic Contexts: ten classes with a video of four seconds each, whose last second is the test set

AMBIENT = (
    "Applause",
    "Crowd",
    "Door",
    "Laughter",
    "Others",
    "Silence",
    "Television",
    "TypingClicking",
    " Walk",
    "Tenth",
)  # one with a blank


def ambient(root: Path) -> Path:
    lines: dict[str, list[str]] = {"train": [], "test": []}
    for number, label in enumerate(AMBIENT):
        recording = f"id_-{number}_HjvnJLIk_40_50"
        for second in range(4):
            name = f"{recording}_{second:02d}.wav"
            tone(root / "datasets" / "ambient_context" / "Data" / recording / name, 0.25, 48000)
            lines["test" if second == 3 else "train"].append(f"{name}\t{label}\n")
    for split, text in lines.items():
        write(root / "data_splits" / "ambient_context" / f"{split}_split.txt", "".join(text))
    return root


# ---- FSD50K: four training clips, one validation clip, two evaluation clips

FSD_DEV = {
    "64760": ("Electric_guitar,Guitar,Music", "train"),
    "63": ("Music", "train"),
    "10000": ("Guitar,Music", "train"),
}
FSD_DEV |= {"136": ("Music", "train"), "345111": ("Guitar,Music", "val")}
FSD_EVAL = {"37199": "Electric_guitar,Guitar,Music", "99": "Music"}


def fsd50k(root: Path) -> Path:
    home = root / "FSD50K"
    mids = {"Electric_guitar": "/m/02sgy", "Guitar": "/m/0342h", "Music": "/m/04rlf"}
    dev = [
        f'{name},"{labels}","{",".join(mids[label] for label in labels.split(","))}",{split}\n'
        for name, (labels, split) in FSD_DEV.items()
    ]
    evaluation = [
        f'{name},"{labels}","{",".join(mids[label] for label in labels.split(","))}"\n'
        for name, labels in FSD_EVAL.items()
    ]
    truth = home / "FSD50K.ground_truth"
    write(truth / "dev.csv", "fname,labels,mids,split\n" + "".join(dev))
    write(truth / "eval.csv", "fname,labels,mids\n" + "".join(evaluation))
    write(truth / "vocabulary.csv", "".join(f"{row},{label},{mid}\n" for row, (label, mid) in enumerate(mids.items())))
    for part, names in (("dev", FSD_DEV), ("eval", FSD_EVAL)):
        split = {name: FSD_DEV[name][1] if part == "dev" else part for name in names}  # each uploader is in one split
        clips = {name: {"title": name, "tags": [], "uploader": f"{split[name]}{len(name) % 2}"} for name in names}
        write(home / "FSD50K.metadata" / f"{part}_clips_info_FSD50K.json", json.dumps(clips))
        for name in names:
            tone(home / f"FSD50K.{part}_audio" / f"{name}.wav", 0.25, 44100)
    return root


# ---- Free Spoken Digit Dataset: four speakers, eight takes of every digit; recordings differ in pitch and length


def fsdd(root: Path) -> Path:
    for place, speaker in enumerate(("ann", "bob", "cat", "dan")):
        for take in range(8):
            for digit in range(10):
                name = f"{digit}_{speaker}_{take}.{'wav' if take % 2 else 'flac'}"
                tone(root / "recordings" / name, 0.1 + 0.01 * digit, 8000, 200 + 300 * place + 20 * digit + take)
    return root
