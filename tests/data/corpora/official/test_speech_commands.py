"""Speech Commands, on a tree in the official layout."""

from __future__ import annotations

import math
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from fedray.data.corpora.official.layout import LeftOut
from fedray.data.corpora.official.speech_commands_clips import COMMANDS, OTHERS, WORDS, split_by_hash
from fedray.data.corpora.official.speech_commands_silence import draw_silence
from fedray.data.federation.partition import PartitionSettings, partition
from fedray.data.federation.settings import DataSettings
from fedray.data.federation.speech_data import divide
from tests import trees
from tests.trees import DEV, NOISES, TAKES, TEST, TRAIN, read, tone, write

TRAINED = sum(TAKES[speaker] for speaker in TRAIN)  # training clips of each word


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trees.speech_commands(tmp_path_factory.mktemp("commands"))


def test_35_words_by_the_official_lists(made: Path) -> None:
    splits = read("speech_commands", made)
    assert {split: len(part) for split, part in splits.items()} == {"train": 35 * TRAINED, "dev": 35, "test": 35}
    assert {split: set(part.column("speaker")) for split, part in splits.items()} == {
        "train": set(TRAIN),
        "dev": {DEV},
        "test": {TEST},
    }
    row = splits["test"][0]
    assert (row.utterance, row.speaker, row.text, row.label) == (
        f"backward/{TEST}_nohash_0",
        TEST,
        "backward",
        "backward",
    )
    assert (row.offset, row.seconds) == (0, 0.25)
    assert set(splits["train"].column("label")) == set(WORDS) and len(WORDS) == 35
    for part in splits.values():
        part.check()
    inside = made / "SpeechCommands" / "speech_commands_v0.02"
    assert read("speech_commands", inside)["train"].table.equals(splits["train"].table)
    assert read("speech_commands", inside.parent)["train"].table.equals(splits["train"].table)


def test_the_hash_is_the_official_one(made: Path) -> None:
    # These speakers are in test_split.txt of Flower's FedSTAR baseline.
    first = "563aa4e6 8056e897 84d1e469 4c6167ca 653a48f5 e5e54cee a4e8a997"
    others = "d5b963aa 6379c6a2 c7dc7278 5ff3f9a1 9a7c1f83 4290ca61 37fc5d97"
    assert {split_by_hash(speaker) for speaker in [*first.split(), *others.split()]} == {"test"}
    by_list, by_hash = read("speech_commands", made), read("speech_commands", made, split="hash")
    assert all(by_hash[split].table.equals(part.table) for split, part in by_list.items())
    shares = Counter(split_by_hash(f"{number:08x}") for number in range(5000))
    # A tenth each, within four standard deviations of a binomial.
    assert all(abs(shares[split] - 500) < 4 * math.sqrt(5000 * 0.1 * 0.9) for split in ("dev", "test"))


def test_12_classes_have_silence_and_unknown_words(made: Path) -> None:
    splits = read("speech_commands", made, classes=12)
    for split, clips in {"train": 10 * TRAINED, "dev": 10, "test": 10}.items():
        labels = Counter(splits[split].column("label"))
        assert labels == dict.fromkeys(COMMANDS, clips // 10) | {
            "_silence_": math.ceil(clips / 10),
            "_unknown_": math.ceil(clips / 10),
        }
        unknown = [row for row in splits[split] if row.label == "_unknown_"]
        assert all(row.text in OTHERS and row.utterance.startswith(f"{row.text}/") for row in unknown)
        splits[split].check()
    everything = read("speech_commands", made, classes=12, unknown_percentage=None, silence_percentage=30.0)["train"]
    assert Counter(everything.column("label"))["_unknown_"] == 25 * TRAINED
    assert Counter(everything.column("label"))["_silence_"] == 0.3 * 10 * TRAINED
    again, other = read("speech_commands", made, classes=12), read("speech_commands", made, seed=1, classes=12)
    assert all(again[split].table.equals(part.table) for split, part in splits.items())
    assert not other["train"].table.equals(splits["train"].table)


def test_silence_is_cut_from_parts_of_the_noise_that_splits_do_not_share(made: Path) -> None:
    splits = read("speech_commands", made, classes=36, silence_percentage=100.0)
    for split, (begin, end) in {"train": (0, 0.8), "dev": (0.8, 0.9), "test": (0.9, 1)}.items():
        cuts = [row for row in splits[split] if row.label == "_silence_"]
        assert len(cuts) == len(splits[split]) / 2
        for row in cuts:
            length = NOISES[Path(row.path).stem]
            assert (
                begin * length <= row.offset
                and row.offset + row.seconds <= end * length + 1e-9
                and row.seconds == 1
                and row.text is None
            )
        splits[split].check()
    # A speaker's cuts of silence are in proportion to its clips: here there is one for each clip.
    cuts = Counter(row.speaker for row in splits["train"] if row.label == "_silence_")
    assert cuts == {speaker: 35 * TAKES[speaker] for speaker in TRAIN}
    few = read("speech_commands", made, classes=36)
    assert {split: part.column("label").count("_silence_") for split, part in few.items()} == {
        "train": TRAINED,
        "dev": 1,
        "test": 1,
    }


def test_every_second_of_noise_is_equally_likely() -> None:
    """Cuts of 1 s begin anywhere in 0.8 x 15 - 1 = 11 s of one file and 44 s of the other, with equal chance."""
    cuts = draw_silence({"/short.wav": 15.0, "/long.wav": 56.25}, (0.0, 0.8), ["s"], 2000, "train", 0)
    assert cuts.column("path").count("/long.wav") / 2000 == pytest.approx(0.8, abs=0.04)
    starts = [row.offset for row in cuts if row.path == "/long.wav"]
    assert np.mean(starts) == pytest.approx(22, abs=1.5) and max(starts) < 44


def test_all_speakers_are_clients_if_asked(made: Path) -> None:
    splits = read("speech_commands", made, classes=12, speakers="all")
    assert list(splits) == ["train"] and set(splits["train"].column("speaker")) == set(TAKES)
    server, clients, scored = divide(splits, DataSettings(dev_share=0.2, test_share=0.2))
    assert server is None and len(set(clients.column("speaker"))) == 3 and list(scored) == ["test", "dev"]
    served = partition(read("speech_commands", made)["train"], PartitionSettings(), 0)
    assert {client: len(rows) for client, rows in served.items()} == {speaker: 35 * TAKES[speaker] for speaker in TRAIN}


def test_the_test_archive(made: Path, tmp_path: Path) -> None:
    archive = tmp_path / "speech_commands_test_set_v0.02"
    for word in COMMANDS:
        tone(archive / word / f"{TEST}_nohash_0.wav", 0.25)
    tone(archive / "_unknown_" / "wow_4290ca61_nohash_1.wav.wav", 0.25)
    tone(archive / "_unknown_" / "wow_4290ca61_nohash_1.wav", 0.25)
    tone(archive / "_silence_" / "0.wav", 1.0)
    splits = read("speech_commands", made, classes=12, test_archive=str(archive))
    test = {row.utterance: row for row in splits["test"]}
    assert len(test) == 13 and len(splits["dev"]) == 12
    splits["test"].check()
    odd = test["_unknown_/wow_4290ca61_nohash_1.wav"]
    assert (odd.speaker, odd.text, odd.label, Path(odd.path).name) == (
        "4290ca61",
        "wow",
        "_unknown_",
        "wow_4290ca61_nohash_1.wav.wav",
    )
    assert test["_unknown_/wow_4290ca61_nohash_1"].label == "_unknown_"
    assert (test["_silence_/0"].speaker, test["_silence_/0"].text, test["_silence_/0"].seconds) == (
        "_silence_",
        None,
        1.0,
    )
    assert (test[f"yes/{TEST}_nohash_0"].speaker, test[f"yes/{TEST}_nohash_0"].label) == (TEST, "yes")
    write(archive / "yes" / "notes.txt", "")
    with pytest.raises(ValueError, match=r"yes/notes\.txt is not a \.wav file: remove it"):
        read("speech_commands", made, classes=12, test_archive=str(archive))
    shutil.rmtree(archive / "yes")
    with pytest.raises(
        ValueError, match=r"must hold the folders .* but differs in yes: unpack speech_commands_test_set"
    ):
        read("speech_commands", made, classes=12, test_archive=str(archive))
    with pytest.raises(ValueError, match=rf"{made}/gone is missing: .* correct data\.options\.test_archive"):
        read("speech_commands", made, classes=12, test_archive="gone")


def test_fedstars_own_lists(made: Path, tmp_path: Path) -> None:
    lists = tmp_path / "data_splits" / "speech_commands"
    chosen = [f"{word}/{speaker}_nohash_0" for word in ("zero", "yes", "go") for speaker in (TRAIN[0], DEV)]
    write(lists / "train_split.txt", "".join(f"{name}.wav\n" for name in chosen) + "_silence_/running_tap_00000.wav\n")
    write(lists / "test_split.txt", f"yes/{TEST}_nohash_0.wav\nbed/{TEST}_nohash_0.wav\n")
    options = {"split": "files", "split_files": str(lists)}
    total = 35 * sum(TAKES.values()) + 1
    reasons = rf"{total - 9} in neither list \(.*\); 1 listed cuts of silence, which the reader"
    told = rf"{total - 6 - 2} of {total} recordings are left out: {reasons}"
    with pytest.warns(LeftOut, match=told):
        splits = read("speech_commands", made, **options)
    assert {split: sorted(part.column("utterance")) for split, part in splits.items()} == {
        "train": sorted(chosen),
        "test": [f"bed/{TEST}_nohash_0", f"yes/{TEST}_nohash_0"],
    }
    # The paper's division: all other listed words are unknown, and the test archive is the test set.
    archive = tmp_path / "archive"
    for word in (*COMMANDS, "_silence_"):
        tone(archive / word / f"{TEST}_nohash_0.wav", 0.25)
    tone(archive / "_unknown_" / "wow_4290ca61_nohash_1.wav.wav", 0.25)
    write(lists / "test_split.txt", f"yes/{TEST}_nohash_0.wav\n_unknown_/wow_4290ca61_nohash_1.wav.wav\n")
    with pytest.raises(
        ValueError, match=r"test_split\.txt:2: the clip _unknown_/.* does not exist: set data\.options\.test_archive"
    ):
        read("speech_commands", made, **options, classes=12)
    with pytest.warns(LeftOut, match=r"in neither list .*and \d+ more"):
        splits = read(
            "speech_commands", made, **options, classes=12, unknown_percentage=None, test_archive=str(archive)
        )
    assert list(splits) == ["train", "test"]
    # One cut of silence: a tenth of four clips, rounded up.
    assert Counter(splits["train"].column("label")) == {"yes": 2, "go": 2, "_unknown_": 2, "_silence_": 1}
    assert sorted(splits["test"].column("label")) == ["_unknown_", "yes"]
    for text, words in (
        (
            "yes/ffffffff_nohash_0.wav",
            r"train_split\.txt:1: the clip yes/ffffffff_nohash_0\.wav does not exist: unpack the archives again",
        ),
        (f"{chosen[0]}.wav\n{chosen[0]}.wav", r"train_split\.txt:2: .* is already listed: restore FedSTAR's lists"),
        (f"yes/{TEST}_nohash_0.wav", r"test_split\.txt:1: .* is already listed"),
        ("\n", r"train_split\.txt lists nothing: fetch FedSTAR's list again"),
    ):
        write(lists / "train_split.txt", text + "\n")
        with pytest.raises(ValueError, match=words):
            read("speech_commands", made, **options)
    (lists / "train_split.txt").unlink()
    with pytest.raises(ValueError, match=r"train_split\.txt is missing: fetch FedSTAR's list"):
        read("speech_commands", made, **options)


def test_draws_do_not_depend_on_the_place_of_the_corpus(made: Path, tmp_path: Path) -> None:
    moved = Path(shutil.copytree(made / "SpeechCommands", tmp_path / "moved"))
    here, there = (
        read("speech_commands", made, classes=12)["train"],
        read("speech_commands", moved, classes=12)["train"],
    )
    assert here.column("utterance") == there.column("utterance") and np.array_equal(
        here.array("offset"), there.array("offset")
    )
