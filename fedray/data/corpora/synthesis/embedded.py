"""A corpus that needs no download: synthetic speech of many speakers, accents and channels, made on first use."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

import pyarrow.parquet as pq

from fedray.core.parallel import Parallel
from fedray.data.corpora.synthesis import espeak
from fedray.data.corpora.synthesis.attributes import ATTRIBUTES, speaker_attributes
from fedray.data.corpora.synthesis.making import code, make
from fedray.data.corpora.synthesis.recipe import Recipe
from fedray.data.corpora.synthesis.translation import translated
from fedray.data.manifest import Manifest
from fedray.storage.cache import cached, key

SERVER = ("server", "test-server")  # splits whose translations prefer no dialect's words


@dataclass(frozen=True)
class Embedded(Recipe):
    """The embedded corpus: `Recipe` says what the settings mean."""

    ATTRIBUTES: ClassVar[tuple[str, ...]] = ATTRIBUTES  # of speakers, see `attributes`

    def read(self, root: Path | None, seed: int, cache: Path, parallel: Parallel) -> dict[str, Manifest]:
        """Make the splits "server", "clients", "dev", "test" and "test-server", if they have speakers.

        The audio is made below `cache` on first use. Raises ValueError for impossible settings, or if espeak-ng is not
        installed.
        """
        if root is not None:
            raise ValueError(f"data.root is {root}, but the embedded corpus is made, not read: remove data.root")
        self.check()
        version = None if self.kind == "events" else espeak.version()
        settings = {name: value for name, value in asdict(self).items() if name != "translation"}
        parts = {"settings": settings, "seed": seed, "code": code(self), "espeak": version}
        build = partial(make, recipe=self, seed=seed, parallel=parallel)
        folder = cached(Path(cache) / f"embedded-{self.kind}-{key(parts)}", build)
        splits: dict[str, list[dict[str, object]]] = {}
        for row in pq.read_table(folder / "manifest.parquet").to_pylist():
            row["path"] = str(folder.absolute() / row["path"])
            split = row.pop("split")
            if self.translation is not None:
                dialect = row["label"] if split not in SERVER and self.dialects else None
                row["translation"] = translated(row["text"], self.translation, dialect, row["utterance"])
            splits.setdefault(split, []).append(row)
        if self.server_speakers == 0 and "clients" in splits:
            splits = {"train": splits.pop("clients"), **splits}
        return {split: Manifest.from_rows(found, source=str(folder)) for split, found in splits.items()}

    def attributes(self, seed: int) -> dict[str, dict[str, str]]:
        """Attribute -> speaker -> its value. A source of sound has none."""
        return speaker_attributes(self, seed)

    def client_speakers_made(self) -> int:
        """How many speakers the split "clients" will have, known before any audio is made."""
        return self.client_speakers
