"""The corpus without a download: seeded synthetic speech of many speakers, accents and channels, made on first use."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from fedray.core.parallel import Parallel
from fedray.data.corpora.synthesis import espeak
from fedray.data.corpora.synthesis.recipe import Recipe
from fedray.data.corpora.synthesis.recording import record
from fedray.data.corpora.synthesis.rooms import SAMPLE_RATE
from fedray.data.corpora.synthesis.sessions import TRAINING, labels, sessions
from fedray.data.manifest import Manifest
from fedray.storage.cache import cached, key

TEXTS = pa.string()
SCHEMA = pa.schema(
    [("split", TEXTS), ("utterance", TEXTS), ("path", TEXTS), ("offset", pa.float64()), ("seconds", pa.float64())]
    + [("speaker", TEXTS), ("text", TEXTS), ("label", TEXTS)]
)


@dataclass(frozen=True)
class Embedded(Recipe):
    """The embedded corpus: `Recipe` says what the settings mean."""

    def read(self, root: Path | None, seed: int, cache: Path, parallel: Parallel) -> dict[str, Manifest]:
        """The splits "server", "clients", "dev", "test" and "test-server", if they have speakers.

        The audio is made below `cache` on first use. Raises ValueError for impossible settings, and if espeak-ng is not
        installed.
        """
        if root is not None:
            raise ValueError(f"data.root is {root}, but the embedded corpus is made, not read: remove data.root")
        self.check()
        version = None if self.kind == "events" else espeak.version()
        parts = {"settings": asdict(self), "seed": seed, "code": _code(), "espeak": version}
        build = partial(self.build, seed=seed, parallel=parallel)
        folder = cached(Path(cache) / f"embedded-{self.kind}-{key(parts)}", build)
        splits: dict[str, list[dict[str, object]]] = {}
        for row in pq.read_table(folder / "manifest.parquet").to_pylist():
            row["path"] = str(folder.absolute() / row["path"])
            splits.setdefault(row.pop("split"), []).append(row)
        if self.server_speakers == 0 and "clients" in splits:
            splits = {"train": splits.pop("clients"), **splits}
        return {split: Manifest.from_rows(found, source=str(folder)) for split, found in splits.items()}

    def client_speakers_made(self) -> int:
        """How many speakers the split "clients" will have, known before any audio is made."""
        return self.client_speakers

    def build(self, folder: Path, seed: int, parallel: Parallel) -> None:
        """Record every speaker into `folder`, and write `manifest.parquet` there."""
        planned = list(sessions(self, seed))
        heard = {text for split, session in planned if split in TRAINING for text in session.texts}
        rows = []
        lengths = parallel(partial(record, folder=folder), [session for _, session in planned], "synthesising speakers")
        for (split, session), samples in zip(planned, lengths, strict=True):
            start = 0
            found = zip(session.texts, labels(self, split, session, heard), samples, strict=True)
            for position, (text, label, count) in enumerate(found):
                rows.append(
                    {
                        "split": split,
                        "utterance": f"{session.id}-{position:03d}",
                        "path": session.path,
                        "offset": start / SAMPLE_RATE,
                        "seconds": count / SAMPLE_RATE,
                        "speaker": session.id,
                        "text": text,
                        "label": label,
                    }
                )
                start += count
        pq.write_table(pa.Table.from_pylist(rows, SCHEMA), folder / "manifest.parquet")


def _code() -> str:
    """A hash of the code and the lexicons that make the audio: a change of either makes a new corpus."""
    digest = hashlib.blake2b(digest_size=8)
    for path in sorted(path for path in Path(__file__).parent.rglob("*") if path.suffix in (".py", ".yaml")):
        digest.update(path.read_bytes())
    return digest.hexdigest()
