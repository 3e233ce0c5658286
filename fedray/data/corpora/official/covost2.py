"""CoVoST 2 (Wang, Wu, Gu, Pino, Interspeech 2021): Common Voice 4 with translations, into English and out of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fedray.core.parallel import Parallel
from fedray.core.ranges import Count, Positive, Ranged
from fedray.data.corpora.assembly import corpus_root
from fedray.data.corpora.official.clip_tables import (
    NO_AUDIO,
    Reasons,
    cleaned,
    find_language,
    manifest,
    read_rows,
    read_table,
    with_accents,
    with_seconds,
    with_suffix,
    without,
)
from fedray.data.corpora.official.held_out import cut, without_repeated
from fedray.data.corpora.official.layout import leave_out, names_in
from fedray.data.manifest import Manifest, place
from fedray.data.text.normalisation import nfc

SPLITS = ("train", "dev", "test")
BESIDE = ("dev_covost", "test_covost", "dev_dup", "test_dup")  # in the lists, but in no official split
# Damaged clips; SpeechBrain's recipe for CoVoST leaves them out too.
BAD_CLIPS = (
    "common_voice_en_19504777.mp3",
    "common_voice_en_19817845.mp3",
    "common_voice_fr_19528232.mp3",
    "common_voice_fr_19528233.mp3",
)


@dataclass(frozen=True)
class CoVoST2(Ranged):
    r"""The text is Common Voice's sentence, the translation CoVoST's; the speaker is the start of client_id.

    `validated.tsv` and `covost_v2.<source>_<target>.tsv` are joined on `path`. Neither has quoting, and a character
    after `\` stands for itself. As in get_covost_splits.py, the split train includes train_covost, and rows of
    dev_covost, test_covost, dev_dup and test_dup are in no split. Lengths come from clip_durations.tsv if there is one,
    or else from the mp3 files, read in parallel. The reader leaves out clips that are missing, unreadable or known to
    be bad, and rows of the list that are not in validated.tsv. Other sentences of validated.tsv are not used.

    Du et al. (2024) make clients of four accents: accents [england, australia, indian, canad], held_out 2500, and
    data.clients {by: label}.
    """

    source: str = "en"  # spoken language: the folder in data.root or in its folder cv-corpus-...
    target: str = "zh-CN"  # language of the translation
    # Keep speakers whose accent begins with one of these, ignoring case; the label is the beginning. []: all speakers,
    # without labels
    accents: list[str] = field(default_factory=list)
    # Utterances of dev, and as many of test, for each accent, drawn with data.seed from all official splits together.
    # Their speakers may train too, on other sentences. null: the official splits
    held_out: Count | None = None
    lower_case: bool = False  # converts the text, not the translation, to lower case
    punctuation: bool = True  # false: keep only the words of the text, by the rules of the language in docs/corpora.md
    max_seconds: Positive | None = None  # longer clips of train (with `held_out`: of all) are left out; null: none

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.held_out is not None and not self.accents:
            raise ValueError(
                "data.options.held_out cuts dev and test for each accent: set data.options.accents, such as [england]"
            )

    def read(self, root: Path | None, seed: int, cache: Path, parallel: Parallel) -> dict[str, Manifest]:
        """Read the splits train, dev and test.

        Raises ValueError for files that are missing or wrong, with the row, and for splits without utterances.
        """
        root = corpus_root(
            root, "the folder of the spoken language (en/), with clips/, validated.tsv and CoVoST's list"
        )
        home = find_language(root, self.source, "source")
        path = self._list(root, home)
        listed = _listed(path)
        validated = home / "validated.tsv"
        if not validated.is_file():
            raise ValueError(f"{validated} is missing: unpack it from Common Voice 4's archive of {self.source}")
        table, reasons = read_rows(validated, ("client_id", "path", "sentence"), bool(self.accents), escapes=True)
        table = with_suffix(table)
        total = len(listed) + sum(map(len, reasons.values()))
        table = self._joined(listed, validated, table, reasons)
        table = self._usable(table, home, parallel, reasons)
        if self.held_out is None:
            leave_out(path, total, reasons)
        if not len(table):
            raise ValueError(
                f"{path}: no recording is left of {len(listed):,}: unpack Common Voice 4 (other versions have other "
                "clips), or change data.options"
            )
        data = manifest(table, home, path)
        if self.held_out is not None:
            splits, again = without_repeated(cut(data, self.held_out, seed))
            leave_out(path, total, reasons | {"whose sentence is in dev or test": again})
            return splits
        chosen = np.array(table["split"].to_pylist())
        splits = {split: data.take(np.flatnonzero(chosen == split)) for split in SPLITS}
        if empty := [split for split, part in splits.items() if not len(part)]:
            raise ValueError(f"{path}: no recording is left for {empty[0]}: complete clips/, or change data.options")
        return splits

    def _list(self, root: Path, home: Path) -> Path:
        """Find CoVoST's list of the language pair, beside validated.tsv, in the folder above it or in the root."""
        name = f"covost_v2.{self.source}_{self.target}.tsv"
        for folder in dict.fromkeys((home, home.parent, root)):
            if (folder / name).is_file():
                return folder / name
        there = sorted(file.name for file in home.glob(f"covost_v2.{self.source}_*.tsv") if file.name.count(".") == 2)
        pairs = ", ".join(other.removesuffix(".tsv").rpartition("_")[2] for other in there) or "none"
        raise ValueError(
            f"{home / name} is missing: unpack {name}.tar.gz of CoVoST 2 there, or set data.options.target to a "
            f"language whose list is there ({pairs})"
        )

    def _joined(self, listed: pa.Table, validated: Path, table: pa.Table, reasons: Reasons) -> pa.Table:
        """The rows of CoVoST's list, with the columns of validated.tsv."""
        if (row := _repeated(table["path"])) is not None:
            raise ValueError(f"{validated}: {table['path'][row]} is in several rows: restore the file")
        found = pc.index_in(listed["path"], value_set=table["path"].combine_chunks())
        # Rows that are not in validated.tsv lack a sentence; `without` names their clips.
        joined = table.drop_columns("path").take(found.combine_chunks())
        for name in ("path", "translation", "split"):
            joined = joined.append_column(name, listed[name])
        joined = without(joined, pc.is_null(joined["split"]), "in no official split", reasons)
        return without(joined, pc.is_null(joined["client_id"]), f"not in {validated.name}", reasons)

    def _usable(self, table: pa.Table, home: Path, parallel: Parallel, reasons: Reasons) -> pa.Table:
        clips = pa.array(names_in(home / "clips"), pa.large_string())
        texts = cleaned(table["sentence"], self.lower_case, self.punctuation, self.source)
        table = table.append_column("text", texts)
        bad = pa.array(BAD_CLIPS, pa.large_string())
        table = without(table, pc.is_in(table["path"], value_set=bad), "known to be bad", reasons)
        table = without(table, pc.equal(table["client_id"], ""), "without client_id", reasons)
        if self.accents:
            table = with_accents(table, self.accents, reasons)
        table = without(table, pc.invert(pc.is_in(table["path"], value_set=clips)), NO_AUDIO, reasons)
        table = without(table, pc.equal(table["text"], ""), "without a letter", reasons)
        table = without(table, pc.equal(table["translation"], ""), "without a translation", reasons)
        table = with_seconds(table, home, 0.0, None, parallel, reasons)
        if self.max_seconds is None:
            return table
        long = pc.greater(table["seconds"], self.max_seconds)
        if self.held_out is None:  # the official dev and test sets are scored whole
            long = pc.and_(long, pc.equal(table["split"], "train"))
        return without(table, long, f"longer than {self.max_seconds} s", reasons)


def _listed(path: Path) -> pa.Table:
    """Read path, translation and split (train, dev, test or null) of CoVoST's list. Raises ValueError with the row."""
    table = with_suffix(read_table(path, ("path", "translation", "split"), escapes=True))
    splits = pc.replace_substring_regex(table["split"], "^train_covost$", "train")
    official, beside = (pc.is_in(splits, value_set=pa.array(names, pa.large_string())) for names in (SPLITS, BESIDE))
    wrong = pc.index(pc.or_(official, beside), False).as_py()
    if wrong >= 0:
        known = f"train, dev, test, train_covost, {', '.join(BESIDE[:-1])} or {BESIDE[-1]}"
        raise ValueError(
            f"{place(str(path), None, wrong)}: the split must be {known}, not {table['split'][wrong].as_py()!r}: "
            "restore CoVoST's list"
        )
    if (row := _repeated(table["path"])) is not None:
        raise ValueError(
            f"{place(str(path), None, row)}: {table['path'][row]} is in an earlier row too: restore CoVoST's list"
        )
    texts = pc.utf8_trim_whitespace(nfc(table["translation"]))
    return pa.table({"path": table["path"], "translation": texts, "split": pc.if_else(official, splits, None)})


def _repeated(values: pa.ChunkedArray) -> int | None:
    """The first row that repeats the value of an earlier row; None if there is none."""
    codes = pc.dictionary_encode(values.combine_chunks()).indices.to_numpy()
    first = np.zeros(len(codes), bool)
    first[np.unique(codes, return_index=True)[1]] = True
    return None if first.all() else int(np.argmin(first))
