"""`data.skip_broken` in tables: bad rows are left out and told; without it, the first one ends the reading."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fedray.data.corpora.assembly import Told
from fedray.data.corpora.skipping import skipping
from tests import trees
from tests.trees import read, tone, write

HEAD = "path\tspeaker\ttext\tseconds\tpart\n"
GOOD = "a.wav\tann\tone\t0.5\ttrain\nb.wav\tbob\ttwo\t0.5\tdev\n"
OPTIONS = {"train": ["all.tsv"], "text_column": "text", "split_column": "part"}


@pytest.mark.parametrize(("bad", "why"), [
    ("c.wav\t\tthree\t0.5\ttrain", "all.tsv:2: the speaker is empty"),
    ("c.wav\tcid\t\t0.5\ttrain", "all.tsv:2: the text is empty"),
    ("c.wav\tcid\tthree\tlong\ttrain", "all.tsv:2: seconds is 'long'"),
    ("c.wav\tcid\tthree\t-1\ttrain", "all.tsv:2: seconds is '-1'"),
    ("c.wav\tcid\tth\0ree\t0.5\ttrain", "all.tsv:2: the text holds a zero byte"),
    ("c.wav\tcid\tthree", "all.tsv:2: 3 fields in place of 5"),
])  # fmt: skip
def test_a_bad_row_is_left_out_and_told(bad: str, why: str, tmp_path: Path) -> None:
    for name in "abc":
        tone(tmp_path / f"{name}.wav")
    write(tmp_path / "all.tsv", f"{HEAD}{bad}\n{GOOD}")
    with pytest.raises(ValueError, match="all.tsv:2"):
        read("tsv", tmp_path, **OPTIONS)
    with skipping(True), pytest.warns(Told, match=f"data.skip_broken leaves out 1 rows: .*{why}"):
        splits = read("tsv", tmp_path, **OPTIONS)
    assert splits["train"].column("utterance") == ["a.wav"] and splits["dev"].column("utterance") == ["b.wav"]


def test_a_repeated_id_keeps_its_first_row_and_nothing_left_is_an_error(tmp_path: Path) -> None:
    tone(tmp_path / "a.wav")
    tone(tmp_path / "b.wav")
    write(tmp_path / "all.tsv", f"{HEAD}{GOOD}a.wav\tann\tagain\t0.5\ttest\n")
    with skipping(True), pytest.warns(Told, match="all.tsv:4: the id 'a.wav' is in an earlier row"):
        splits = read("tsv", tmp_path, **OPTIONS)
    assert splits["train"].column("text") == ["one"] and set(splits) == {"train", "dev"}
    write(tmp_path / "all.tsv", f"{HEAD}a.wav\t\tone\t0.5\ttrain\n")
    with skipping(True), pytest.warns(Told), pytest.raises(ValueError, match="lists no utterances"):
        read("tsv", tmp_path, **OPTIONS)


@pytest.mark.parametrize(("corpus", "table", "plant"), [
    ("urbansound8k", "UrbanSound8K/metadata/UrbanSound8K.csv", trees.urbansound8k),
    ("fsd50k", "FSD50K/FSD50K.ground_truth/dev.csv", trees.fsd50k),
])  # fmt: skip
def test_official_tables_may_repeat_a_row(
    corpus: str, table: str, plant: Callable[[Path], Path], tmp_path: Path
) -> None:
    plant(tmp_path)
    whole = read(corpus, tmp_path)
    head, first, *others = (tmp_path / table).read_text().splitlines()
    write(tmp_path / table, "\n".join([head, first, first, *others]) + "\n")
    with skipping(True), pytest.warns(Told, match="is in an earlier row"):
        again = read(corpus, tmp_path)
    assert {name: part.column("utterance") for name, part in again.items()} == {
        name: part.column("utterance") for name, part in whole.items()
    }
