"""Parts of speechocean, real speech by Mandarin speakers of English, as folders with manifests of their own."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from pathlib import Path

from benchmarks import study


def utterances(longest: float) -> list[dict[str, str]]:
    """The rows of speechocean's manifest.tsv that last at most so many seconds. Needs FEDRAY_SPEECH."""
    with (study.speech("speechocean") / "manifest.tsv").open(encoding="utf-8") as file:
        return [row for row in csv.DictReader(file, delimiter="\t") if float(row["seconds"]) <= longest]


def write(folder: Path, name: str, rows: Iterable[Mapping[str, str]]) -> None:
    """List the rows, which have the same columns, in a file of the folder, beside a link to the audio.

    A file that lists them already stays untouched.
    """
    rows = list(rows)
    text = "\n".join(["\t".join(rows[0]), *("\t".join(row.values()) for row in rows)]) + "\n"
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "opus").exists():
        (folder / "opus").symlink_to(study.speech("speechocean") / "opus")
    if not (folder / name).exists() or (folder / name).read_text(encoding="utf-8") != text:
        (folder / name).write_text(text, encoding="utf-8")
