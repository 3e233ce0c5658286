"""The corpus that needs no download: seeded synthetic speech of many speakers, accents and channels, made on first use and cached."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fedray.core import seeds
from fedray.core.cache import cached, key
from fedray.core.parallel import Parallel
from fedray.data.corpora.synthesis import espeak, events, sentences, speakers
from fedray.data.corpora.synthesis.acoustics import SAMPLE_RATE
from fedray.data.corpora.synthesis.emotions import EMOTIONS
from fedray.data.corpora.synthesis.events import EVENTS
from fedray.data.corpora.synthesis.recording import Session, Slices, record
from fedray.data.corpora.synthesis.sentences import DOMAIN_GRAMMARS, GRAMMARS
from fedray.data.corpora.synthesis.speakers import Conditions
from fedray.data.manifest import Manifest

KINDS = ("commands", "keywords", "emotions", "events")
SKEWED = ("keywords", "emotions")
TEXTS = pa.string()
SCHEMA = pa.schema(
    [("split", TEXTS), ("utterance", TEXTS), ("path", TEXTS), ("offset", pa.float64()), ("seconds", pa.float64())]
    + [("speaker", TEXTS), ("text", TEXTS), ("label", TEXTS)]
)


@dataclass(frozen=True)
class Embedded:
    """A server with clean speech, clients in rooms and noise, and speakers nobody has heard to test on; every speaker is in one split only.

    "commands" are sentences for recognition. Dev and test hold sentences out: `label` is "unseen" where neither server nor clients say
    the sentence, else "seen"; with several languages, dialects or domains it is these instead. The others are for classification, `label`
    being the class: "keywords" are clips of one second, each a word; "emotions" are the sentences, said angrily, happily, sadly or neither
    (as the actors of CREMA-D do); "events" are ten sounds of a city, clips of 1 to 4 s (as UrbanSound8K's). A "speaker" of events is a
    recorded source, of one class, and its utterances are slices of it. `dev` and `test` are recorded like the clients, `test-server`
    like the server. Without server_speakers the clients' split is "train": data.server may give the server some of them.

    A twin of Common Voice: `tail` 1.9, with which 3 % of the speakers have half of the utterances, as in French (Gao et al., 2022), and
    `clients.snr_within`, so that speakers differ more than a speaker's utterances do.
    """

    kind: str = "commands"
    languages: list[str] = field(default_factory=lambda: ["en"])  # speakers take turns
    dialects: list[str] = field(default_factory=list)  # accents in which all speakers but the server's take turns; []: by clients.accents
    domains: list[str] = field(default_factory=list)  # of which all speakers but the server's talk in turn, each in words of its own
    server_words: bool = False  # with domains: the server reads words of all of them in random order, no sentence; else commands
    server_speakers: int = 40
    server_utterances: int = 25  # of each speaker, as all that follow
    client_speakers: int = 60
    client_utterances: int = 60
    tail: float = 0.0  # of how many a client has: sigma of a log-normal distribution with client_utterances as its mean; 0: all as many
    dev_speakers: int = 20
    dev_utterances: int = 20
    test_speakers: int = 60
    test_utterances: int = 20
    test_server_speakers: int = 15
    test_server_utterances: int = 20
    held_out: float = 0.25  # share of the grammar's sentences that server and clients never say
    unseen: float = 0.5  # share of dev and test utterances drawn from these
    words: int = 35  # keywords: the first so many of each language's 35
    skew: float | None = None  # keywords, emotions: each client's shares of the classes drawn from Dirichlet(skew); null: equal shares
    server: Conditions = field(default_factory=speakers.clean)
    clients: Conditions = field(default_factory=Conditions)

    def read(self, root: Path | None, seed: int, cache: Path, parallel: Parallel) -> dict[str, Manifest]:
        """The splits "server", "clients", "dev", "test" and "test-server" (those with speakers); audio is made below `cache` if need be.

        Raises ValueError for settings that make no sense, and when espeak-ng is not installed.
        """
        if root is not None:
            raise ValueError(f"the embedded corpus is made, not read: remove data.root ({root})")
        self.check()
        parts = {"settings": asdict(self), "seed": seed, "code": _code(), "espeak": None if self.kind == "events" else espeak.version()}
        folder = cached(Path(cache) / f"embedded-{self.kind}-{key(parts)}", partial(self.build, seed=seed, parallel=parallel))
        rows = pq.read_table(folder / "manifest.parquet").to_pylist()
        splits: dict[str, list[dict[str, Any]]] = {}
        for row in rows:
            row["path"] = str(folder.absolute() / row["path"])
            splits.setdefault(row.pop("split"), []).append(row)
        if self.server_speakers == 0 and "clients" in splits:
            splits = {"train": splits.pop("clients"), **splits}
        return {split: Manifest.from_rows(found, source=str(folder)) for split, found in splits.items()}

    def client_speakers_made(self) -> int:
        """How many speakers the split "clients" will have: known before any of it is made."""
        return self.client_speakers

    def check(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f'data.options.kind: choose from {", ".join(KINDS)}, not "{self.kind}"')
        if not self.languages or not set(self.languages) <= set(GRAMMARS):
            raise ValueError(f"data.options.languages: choose from {', '.join(GRAMMARS)}, not {self.languages}")
        if (self.dialects or self.domains) and (self.kind != "commands" or len(self.languages) > 1 or (self.dialects and self.domains)):
            raise ValueError("data.options.dialects and data.options.domains are for commands in one language, and not for use together")
        for name, known in (("dialects", speakers.ACCENTS[self.languages[0]]), ("domains", tuple(DOMAIN_GRAMMARS))):
            if not set(getattr(self, name)) <= set(known):
                raise ValueError(f"data.options.{name}: choose from {', '.join(known)}, not {getattr(self, name)}")
        if self.domains and self.languages != ["en"]:
            raise ValueError(f"data.options.domains are in English, not in {self.languages[0]}: remove them")
        if self.server_words and not self.domains:
            raise ValueError("data.options.server_words are those of domains: set data.options.domains, or remove it")
        for name in ("held_out", "unseen"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"data.options.{name}: a share between 0 and 1, not {getattr(self, name)}")
        if self.held_out == 1 or (self.unseen > 0 and self.held_out == 0):
            raise ValueError(f"data.options.held_out: {self.held_out} leaves nothing to train or to test on; set it between 0 and 1")
        most = min(len(GRAMMARS[language].keywords) for language in self.languages)
        if not 1 <= self.words <= most:
            raise ValueError(f"data.options.words: there are 1 to {most} keywords, not {self.words}")
        if not 0 <= self.tail <= 3:
            raise ValueError(f"data.options.tail: a number from 0 (all clients have as many utterances) to 3, not {self.tail}")
        if self.skew is not None and self.kind not in SKEWED:
            raise ValueError(
                f"data.options.skew is for {' and '.join(SKEWED)}, not {self.kind}: leave it null; "
                "events are divided unevenly by data.clients.by=dirichlet"
            )
        if self.skew is not None and not 0 < self.skew < float("inf"):
            raise ValueError(f"data.options.skew: a number above 0, or null for equal shares, not {self.skew}")
        self.server.check("data.options.server")
        self.clients.check("data.options.clients")

    def build(self, folder: Path, seed: int, parallel: Parallel) -> None:
        """Record every speaker into `folder` and write `manifest.parquet` beside the audio."""
        sessions = list(self.sessions(seed))
        heard = {text for split, session in sessions if split in ("server", "clients") for text in session.texts}
        rows = []
        lengths = parallel(partial(record, folder=folder), [session for _, session in sessions], "synthesising speakers")
        for (split, session), samples in zip(sessions, lengths, strict=True):
            start = 0
            labels = self._labels(split, session, heard)
            for position, (text, label, count) in enumerate(zip(session.texts, labels, samples, strict=True)):
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

    def sessions(self, seed: int) -> Iterator[tuple[str, Session | Slices]]:
        """What every speaker is to say, or every source to sound like, split by split."""
        plan = {
            "server": (self.server_speakers, self.server_utterances, self.server),
            "clients": (self.client_speakers, self.client_utterances, self.clients),
            "dev": (self.dev_speakers, self.dev_utterances, self.clients),
            "test": (self.test_speakers, self.test_utterances, self.clients),
            "test-server": (self.test_server_speakers, self.test_server_utterances, self.server),
        }
        for split, (speakers_made, utterances, conditions) in plan.items():
            for position in range(speakers_made):
                if self.kind == "events":
                    event = EVENTS[position % len(EVENTS)]  # sources take turns, as languages do
                    source = events.draw(f"{split}-{event}-{position:04d}", event, conditions, seed)
                    yield split, Slices(source, self._count(split, utterances, source.id, seed), f"{split}/{source.id}.flac")
                    continue
                speaker = self._speaker(split, position, conditions, seed)
                count = self._count(split, utterances, speaker.id, seed)
                texts = tuple(self._texts(split, speaker, count))
                shown = tuple(self._classes(split, speaker, EMOTIONS, count, "emotions")) if self.kind == "emotions" else None
                yield split, Session(speaker, texts, self.kind == "keywords", f"{split}/{speaker.id}.flac", shown)

    def _speaker(self, split: str, position: int, conditions: Conditions, seed: int) -> speakers.Speaker:
        language = self.languages[position % len(self.languages)]
        if split in ("server", "test-server") or not (self.dialects or self.domains):
            return speakers.draw(f"{split}-{language}-{position:04d}", language, conditions, seed)
        dialect = self.dialects[position % len(self.dialects)] if self.dialects else None
        domain = self.domains[position % len(self.domains)] if self.domains else None
        return speakers.draw(f"{split}-{dialect or domain}-{position:04d}", language, conditions, seed, dialect, domain)

    def _count(self, split: str, mean: int, name: str, seed: int) -> int:
        if split != "clients" or self.tail == 0:
            return mean
        drawn = seeds.numpy_generator(seed, "speaker", name, "tail").lognormal(math.log(mean) - self.tail**2 / 2, self.tail)
        return max(1, round(float(drawn)))

    def _texts(self, split: str, speaker: speakers.Speaker, count: int) -> list[str]:
        grammar = GRAMMARS[speaker.language] if speaker.domain is None else DOMAIN_GRAMMARS[speaker.domain]
        if self.kind == "keywords":
            return self._classes(split, speaker, grammar.keywords[: self.words], count, "texts")
        generator = seeds.numpy_generator(*speaker.names, "texts")
        if self.server_words and speaker.domain is None:
            return sentences.words_of(DOMAIN_GRAMMARS.values(), count, generator)
        texts = []
        for _ in range(count):
            unseen = split not in ("server", "clients") and generator.random() < self.unseen
            texts.append(sentences.draw(grammar, unseen, self.held_out, speaker.seed, generator))
        return texts

    def _classes(self, split: str, speaker: speakers.Speaker, classes: tuple[str, ...], count: int, purpose: str) -> list[str]:
        """A class for each of a speaker's utterances. Only clients have a skew: what is measured is measured on all classes alike."""
        if self.skew is None or split != "clients":
            return sentences.shuffled_words(classes, count, seeds.numpy_generator(*speaker.names, purpose))
        return sentences.skewed_words(classes, count, self.skew, seeds.numpy_generator(*speaker.names, "skew"))

    def _labels(self, split: str, session: Session | Slices, heard: set[str | None]) -> list[str | None]:
        if isinstance(session, Slices):
            return [session.source.event] * session.count
        if session.emotions is not None:
            return list(session.emotions)
        if self.kind == "keywords":
            return list(session.texts)
        if len(self.languages) > 1:
            return [session.speaker.language] * len(session.texts)
        if self.dialects or self.domains:
            return [session.speaker.domain if self.domains else session.speaker.dialect] * len(session.texts)
        if split in ("server", "clients"):
            return [None] * len(session.texts)
        return ["seen" if text in heard else "unseen" for text in session.texts]


def _code() -> str:
    """A hash of the source that makes the audio, so that a change of it makes a new corpus."""
    here = Path(__file__)
    digest = hashlib.blake2b(digest_size=8)
    for path in (here, *sorted((here.parent / "synthesis").glob("*.py"))):
        digest.update(path.read_bytes())
    return digest.hexdigest()
