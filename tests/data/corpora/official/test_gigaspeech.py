"""GigaSpeech: segments of recordings, from a JSON list that is read as a stream."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedray.data.corpora.official.layout import LeftOut
from fedray.data.features import audio
from fedray.data.federation.partition import PartitionSettings, partition
from tests.speech_trees import gigaspeech, gigaspeech_list, recording, segment
from tests.trees import LFS_STUB, read, write

pytestmark = pytest.mark.filterwarnings("ignore::fedray.data.corpora.official.layout.LeftOut")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return gigaspeech(tmp_path_factory.mktemp("gigaspeech"))


def listed(root: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """Write a changed list and return its folder."""
    content = gigaspeech_list()
    change(content)
    write(root / "GigaSpeech" / "GigaSpeech.json", json.dumps(content))
    return root


def test_subsets_of_segments(made: Path) -> None:
    with pytest.warns(LeftOut, match=r"2 of 8 recordings are left out: 2 marked as music, .* \(POD1_S1, YOU5_S1\)"):
        splits = read("gigaspeech", made)
    for manifest in splits.values():
        manifest.check()
    train = splits["train"]
    assert train.column("utterance") == ["POD1_S0", "POD1_S2", "POD2_S0", "YOU3_S0"]
    assert train.column("text") == ["WELL HOW-TO UH", "ONLY XL", "STYLE", "ATOMS"]
    assert train.column("label") == ["Howto and Style"] * 3 + ["Science and Technology"]
    assert train.array("offset").tolist() == [0.0, 2.0, 0.0, 0.25] and set(train.array("seconds")) == {0.5}
    assert [splits[split].column("text") for split in ("dev", "test")] == [["DEV SET"], ["TEST SET"]]
    large = read("gigaspeech", made / "GigaSpeech", train="L", dev=None, lower_case=True, punctuation=True)
    assert list(large) == ["train", "test"] and large["train"].column("text") == ["well, how-to uh?", "style.", "atoms"]


def test_a_recording_is_a_speaker(made: Path) -> None:
    """No speaker is known, so a recording counts as one: its segments stay together as a speaker's would."""
    train = read("gigaspeech", made)["train"]
    assert train.column("speaker") == ["POD1", "POD1", "POD2", "YOU3"] and not train.anonymous


def test_a_segment_of_opus(made: Path) -> None:
    """A segment is read at 16,000 Hz, although some decoders return Opus recordings at 48,000 Hz."""
    second = read("gigaspeech", made)["train"][1]
    assert second.path.endswith(".opus") and len(audio.read(second.path, 16000, second.offset, second.seconds)) == 8000


def test_categories_are_clients(made: Path) -> None:
    train = read("gigaspeech", made, categories=["howto", "SCIENCE"], dev=None, test=None)["train"]
    clients = partition(train, PartitionSettings(by="label"), seed=0)
    assert {name: len(rows) for name, rows in clients.items()} == {"SCIENCE": 1, "howto": 3}
    with pytest.raises(ValueError, match="no category begins with 'news': .*; the categories are Crime, Howto and "):
        read("gigaspeech", made, categories=["news"])
    with pytest.raises(ValueError, match=r"no segment of \{DEV\} is left for dev: correct data.options"):
        read("gigaspeech", made, categories=["howto"])


def test_whole_recordings_are_held_out(tmp_path: Path) -> None:
    gigaspeech(tmp_path)
    sounds = tmp_path / "GigaSpeech" / "audio" / "podcast" / "P0001"
    audios = []
    for number in range(20):
        aid, category = f"POD{number}", ("Crime", "Arts")[number % 2]
        segments = [segment(f"{aid}_S{place}", place / 2, "WORDS", "XL") for place in range(3)]
        audios.append(recording(aid, category, *segments))
        (sounds / f"{aid}.opus").touch()
    listed(tmp_path, lambda content: content.update(audios=audios))
    splits = read("gigaspeech", tmp_path, held_out=4)
    assert Counter(splits["dev"].column("label")) == Counter(splits["test"].column("label")) == {"Crime": 6, "Arts": 6}
    speakers = [set(splits[split].column("speaker")) for split in ("train", "dev", "test")]
    assert sum(map(len, speakers)) == len(set.union(*speakers)) == 20
    with pytest.raises(ValueError, match="held_out: 'Arts' has 30 utterances, too few|'Crime' has 30 utterances, too"):
        read("gigaspeech", tmp_path, held_out=15)


def test_a_recording_without_category_and_empty_segments(made: Path, tmp_path: Path) -> None:
    (tmp_path / "GigaSpeech").mkdir()
    (tmp_path / "GigaSpeech" / "audio").symlink_to(made / "GigaSpeech" / "audio")

    def change(content: dict[str, Any]) -> None:
        del content["audios"][1]["category"]
        content["audios"][2]["segments"][0]["text_tn"] = "<COMMA>"
        content["audios"][0]["segments"][2]["end_time"] = 30

    with pytest.warns(LeftOut, match=r"1 longer than 20 s \(POD1_S2\); 1 without words \(YOU3_S0\)"):
        splits = read("gigaspeech", listed(tmp_path, change), max_seconds=20)
    assert splits["train"].column("label") == ["Howto and Style", "N/A"]


def test_scores_are_of_the_whole_test_set(made: Path, tmp_path: Path) -> None:
    (tmp_path / "GigaSpeech").mkdir()
    (tmp_path / "GigaSpeech" / "audio").symlink_to(made / "GigaSpeech" / "audio")

    def change(content: dict[str, Any]) -> None:
        for number in (1, 3, 4):
            content["audios"][number]["segments"][0]["end_time"] = 30

    splits = read("gigaspeech", listed(tmp_path, change), max_seconds=20)
    assert {split: part.column("utterance") for split, part in splits.items()} == {
        "train": ["POD1_S0", "POD1_S2", "YOU3_S0"],
        "dev": ["YOU4_S0"],
        "test": ["YOU5_S0"],
    }


def first(content: dict[str, Any]) -> dict[str, Any]:
    segments: list[dict[str, Any]] = content["audios"][0]["segments"]
    return segments[0]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda content: first(content).update(begin_time="0"),
            "POD1: POD1_S0: begin_time must be a number .* not '0'",
        ),
        (lambda content: first(content).update(end_time=True), "POD1: POD1_S0: end_time must be a number .* not True"),
        (lambda content: first(content).update(end_time=0.0), "POD1_S0: end_time must come after .*not 0.0 and 0.0"),
        (lambda content: first(content).update(end_time=10**400), "GigaSpeech.json: "),
        (lambda content: first(content).update(subsets="{XL}"), "POD1_S0: subsets must be a list, not '{XL}': fetch"),
        (lambda content: first(content).update(text_tn=None), "POD1_S0: text_tn must be text, not None: fetch"),
        (lambda content: first(content).update(sid=7), r"POD1: segments\[0\]: sid must be text, not 7"),
        (lambda content: content["audios"][0].update(segments={}), "POD1: segments must be a list, not {}"),
        (lambda content: content["audios"][0].update(segments=[1]), r"POD1: segments\[0\] must be an object, not 1"),
        (lambda content: content["audios"][0].update(path="a\0"), r"POD1: path must be text, not 'a\\x00'"),
        (lambda content: content["audios"][1].pop("aid"), r"audios\[1\]: aid must be text, not None"),
        (lambda content: content["audios"].append("x"), r"audios\[5\] must be an object, not 'x'"),
        (lambda content: content.update(audios=[]), "has no recordings under the key audios: fetch GigaSpeech.json"),
        (lambda content: first(content).update(sid="POD2_S0"), "1 utterances are in more than one row"),
        (
            lambda content: content["audios"][0].update(path="audio/x.opus"),
            r"POD1: .*audio/x.opus: missing: download the recordings of the subsets .* \(1 of 5 are missing",
        ),
    ],
)
def test_a_bad_list_is_named(
    change: Callable[[dict[str, Any]], object], words: str, made: Path, tmp_path: Path
) -> None:
    (tmp_path / "GigaSpeech").mkdir()
    (tmp_path / "GigaSpeech" / "audio").symlink_to(made / "GigaSpeech" / "audio")
    with pytest.raises(ValueError, match=words):
        read("gigaspeech", listed(tmp_path, change))


def test_what_is_missing_or_damaged_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"holds no GigaSpeech.json \(also looked in GigaSpeech\): set data.root"):
        read("gigaspeech", tmp_path)
    path = gigaspeech(tmp_path) / "GigaSpeech" / "GigaSpeech.json"
    whole = path.read_bytes()
    for damaged in (whole[: len(whole) // 2], whole.replace(b"STYLE", b"\xff\xfe"), whole.replace(b'"sid":', b'"sid"')):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"GigaSpeech.json: is not JSON, before byte [\d,]+ \(.*\): fetch"):
            read("gigaspeech", tmp_path)
    write(path, LFS_STUB)
    with pytest.raises(ValueError, match="Git LFS stub"):
        read("gigaspeech", tmp_path)
    with pytest.raises(ValueError, match="data.options.train must be one of XS, S, M, L, XL, DEV, TEST, not {XL}"):
        read("gigaspeech", tmp_path, train="{XL}")
    path.write_bytes(whole)
    with pytest.raises(ValueError, match="4 utterances are in more than one row|3 utterances are in more than one row"):
        read("gigaspeech", tmp_path, dev="L")
    monkeypatch.setitem(sys.modules, "ijson", None)
    with pytest.raises(ValueError, match=r'data.corpus gigaspeech needs ijson: pip install "fedray\[gigaspeech\]"'):
        read("gigaspeech", tmp_path)


MEASURE = """
import resource, sys
from pathlib import Path
from tests.trees import read
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
for root, subset in zip(sys.argv[1::2], sys.argv[2::2]):
    before = peak()
    rows = len(read("gigaspeech", Path(root), train=subset, dev=None, test=None)["train"])
    print(rows, peak() - before)
"""


def measured(*read: tuple[Path, str]) -> list[tuple[int, float]]:
    """Read each folder and subset in turn and return its rows and the mebibytes by which the process grows."""
    named = [str(word) for pair in read for word in pair]
    done = subprocess.run([sys.executable, "-c", MEASURE, *named], capture_output=True, text=True, check=True)
    return [(int(rows), float(memory)) for rows, memory in map(str.split, done.stdout.splitlines())]


def big(root: Path, recordings: int, segments: int) -> int:
    """Write a list of recordings, with only the first segment of each in the subset XS. Returns its bytes."""
    home = root / "GigaSpeech"
    (home / "audio" / "podcast" / "P0001").mkdir(parents=True)
    with (home / "GigaSpeech.json").open("w") as file:
        file.write('{"dataset": "GigaSpeech", "audios": [\n')
        for number in range(recordings):
            aid, text = (
                f"POD{number:010d}",
                "AS THEY'RE LEAVING <COMMA> CAN KASH PULL ZAHRA ASIDE REALLY QUICKLY <PERIOD>",
            )
            said = (segment(f"{aid}_S{row}", row * 5.0, text, "XL", *["XS"] * (row == 0)) for row in range(segments))
            file.write(json.dumps(recording(aid, "Crime", *said)) + (",\n" if number + 1 < recordings else ""))
            (home / "audio" / "podcast" / "P0001" / f"{aid}.opus").touch()
        file.write("]}\n")
    return (home / "GigaSpeech.json").stat().st_size


@pytest.mark.nightly
def test_memory_does_not_grow_with_the_list(tmp_path: Path) -> None:
    """Reading few segments of a list of 16 MB takes little more memory than reading a list an eighth as long."""
    small, large = tmp_path / "small", tmp_path / "large"
    big(small, 50, 200)
    size = big(large, 400, 200) / 2**20
    (few, _), (more, grown) = measured((small, "XS"), (large, "XS"))
    assert (few, more) == (50, 400) and grown < size / 4, (grown, size)


@pytest.mark.nightly
def test_a_million_segments(tmp_path: Path) -> None:
    """Keeping all rows takes less than four times the bytes of the list; keeping few takes less than half."""
    size = big(tmp_path, 5000, 200) / 2**20
    (few, little), (all_rows, much) = measured((tmp_path, "XS"), (tmp_path, "XL"))
    assert (few, all_rows) == (5000, 1_000_000) and little < size / 2 and much < 4 * size, (little, much, size)
