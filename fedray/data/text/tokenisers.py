"""Tokenisers: characters or SentencePiece sub-words, both with the CTC blank as token 0."""

from __future__ import annotations

import functools
import io
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import sentencepiece

from fedray.core.texts import read_text
from fedray.storage.files import write_whole

BLANK = "<blank>"
SPACE = "<space>"  # a space in tokens.txt: editors would strip a line of one space
KINDS = ("unigram", "bpe")
UNKNOWN = ("refuse", "leave_out")  # for characters without a token: raise an error, or skip them


def read_sentences(path: Path) -> list[str]:
    """Read the lines of a text file that are not empty. Raises ValueError if it is not UTF-8, or has no such line."""
    if sentences := [line.strip() for line in read_text(path).splitlines() if line.strip()]:
        return sentences
    raise ValueError(f"{path}: holds no sentence: write one on each line, or remove data.text")


class Characters:
    """A tokeniser with one token for each character."""

    blank = 0

    def __init__(self, tokens: Sequence[str]) -> None:
        assert tokens[0] == BLANK and len(set(tokens)) == len(tokens), tokens
        self.tokens = list(tokens)
        self._ids = {token: index for index, token in enumerate(self.tokens)}

    @classmethod
    def train(cls, texts: Iterable[str]) -> Characters:
        """Make tokens of the characters in the texts, in the order of their code points.

        ValueError for texts without characters, and for line breaks, tabs and control characters.
        """
        texts = list(texts)
        seen: set[str] = set().union(*texts)
        if not seen:
            raise ValueError("the transcripts have no characters: is their column empty, or not named in data.options?")
        if odd := untokenisable(seen):
            first = next(text for text in texts if not set(odd).isdisjoint(text))
            raise ValueError(
                f"the transcripts hold {named(odd)}, which cannot be tokens, first in {first!r}; normalise them"
            )
        return cls([BLANK, *sorted(seen)])

    @property
    def size(self) -> int:
        """Tokens including the blank."""
        return len(self.tokens)

    def encode(self, text: str, unknown: str = "refuse") -> list[int]:
        """Text to token ids. ValueError names characters without a token; with unknown="leave_out" they are skipped."""
        missing = [c for c in text if c not in self._ids]
        if missing and unknown == "refuse":
            raise ValueError(_unknown(text, missing))
        return [self._ids[c] for c in text if c in self._ids]

    def decode(self, ids: Iterable[int]) -> str:
        """Token ids to text. Blanks are skipped; repeated tokens stay, since the caller collapses CTC's output."""
        return "".join(self.tokens[index] for index in ids if index != self.blank)

    def save(self, folder: Path) -> None:
        """Write tokens.txt: one token on each line, `<blank>` first, `<space>` for the space."""
        lines = [SPACE if token == " " else token for token in self.tokens]
        text = "".join(f"{line}\n" for line in lines)
        write_whole(Path(folder) / "tokens.txt", text)

    @classmethod
    def load(cls, path: Path) -> Characters:
        """Read tokens.txt. ValueError if it does not begin with the blank, or lists a token twice."""
        lines = read_text(path).removesuffix("\n").split("\n")
        if lines[0] != BLANK:
            raise ValueError(f"{path}: the first line of a list of tokens must be {BLANK}")
        if twice := next((line for line, count in Counter(lines).items() if count > 1), None):
            raise ValueError(f"{path}: the token {twice!r} is listed twice: restore the file")
        return cls([" " if line == SPACE else line for line in lines])


class SentencePiece:
    """A tokeniser of sub-words from the sentencepiece library.

    Its unknown piece is the CTC blank, since `encode` never returns id 0.
    """

    blank = 0

    def __init__(self, proto: bytes) -> None:
        self.proto = proto

    @classmethod
    def train(cls, texts: Iterable[str], size: int, kind: str = "unigram") -> SentencePiece:
        """Train `size` tokens including the blank; kind unigram | bpe. The same texts give the same bytes.

        ValueError for a size that the texts do not allow.
        """
        if kind not in KINDS:
            raise ValueError(f"sub-words of kind {kind!r} are not known; choose one of {', '.join(KINDS)}")
        texts = list(texts)
        model = io.BytesIO()
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(texts),
                model_writer=model,
                vocab_size=size,
                model_type=kind,
                unk_id=0,
                unk_piece=BLANK,
                pad_id=-1,
                bos_id=-1,
                eos_id=-1,
                character_coverage=1.0,
                normalization_rule_name="identity",
                # SentencePiece silently drops longer lines, and refuses a limit below 10.
                max_sentence_length=max([10, *(1 + len(text.encode()) for text in texts)]),
                num_threads=1,
                minloglevel=2,
            )
        except RuntimeError as error:
            message = str(error).split("] ")[-1].strip(" .")
            raise ValueError(
                f"{size} {kind} sub-words cannot be made of {len(texts)} transcripts: {message}; change the size"
            ) from error
        return cls(model.getvalue())

    def __getstate__(self) -> dict[str, bytes]:
        return {"proto": self.proto}

    @functools.cached_property
    def _processor(self) -> sentencepiece.SentencePieceProcessor:
        return sentencepiece.SentencePieceProcessor(model_proto=self.proto)

    @functools.cached_property
    def tokens(self) -> list[str]:
        return [self._processor.id_to_piece(index) for index in range(self.size)]

    @property
    def size(self) -> int:
        """Tokens including the blank."""
        return self._processor.get_piece_size()

    def encode(self, text: str, unknown: str = "refuse") -> list[int]:
        """Text to token ids. ValueError names characters without a token; with unknown="leave_out" they are skipped."""
        ids: list[int] = self._processor.encode(text)
        if self.blank in ids and unknown == "leave_out":
            return [index for index in ids if index != self.blank]
        if self.blank in ids:
            known = set("".join(self.tokens[1:])) | {" "}
            raise ValueError(_unknown(text, [c for c in text if c not in known]))
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        """Token ids to text. Blanks are skipped; repeated tokens stay, since the caller collapses CTC's output."""
        text: str = self._processor.decode([int(index) for index in ids if index != self.blank])
        return text

    def save(self, folder: Path) -> None:
        """Write tokeniser.model."""
        write_whole(Path(folder) / "tokeniser.model", self.proto)

    @classmethod
    def load(cls, path: Path) -> SentencePiece:
        """Read tokeniser.model. ValueError for a damaged file."""
        found = cls(path.read_bytes())
        try:
            _ = found._processor
        except RuntimeError as error:
            raise ValueError(f"{path}: is not a model of SentencePiece: restore the file") from error
        return found


Tokeniser = Characters | SentencePiece


FILES: dict[str, type[Tokeniser]] = {
    "tokens.txt": Characters,
    "tokeniser.model": SentencePiece,
}  # as `save` writes them


def tokeniser_file(folder: Path) -> Path | None:
    """The file in the folder that holds a tokeniser. None if there is none."""
    return next((folder / name for name in FILES if (folder / name).exists()), None)


def load_tokeniser(folder: Path) -> Tokeniser:
    """Load the tokeniser that `save` wrote to the folder. ValueError if there is none, or its file is damaged."""
    if (path := tokeniser_file(folder)) is None:
        raise ValueError(
            f"{folder}: has no tokeniser (neither tokens.txt nor tokeniser.model): write tokens.txt, one token on each "
            f"line in the order of the model's outputs, with {BLANK} first and {SPACE} for the space"
        )
    return FILES[path.name].load(path)


def untokenisable(characters: Iterable[str]) -> list[str]:
    """The characters that cannot be tokens, sorted: white space other than the plain space, and control characters."""
    return sorted(c for c in characters if c != " " and (c.isspace() or unicodedata.category(c) == "Cc"))


def named(characters: Sequence[str]) -> str:
    """List characters with their code points, so that a reader can tell them apart: 'é' (U+00E9)."""
    return ", ".join(f"{c!r} (U+{ord(c):04X})" for c in characters)


def _unknown(text: str, characters: Sequence[str]) -> str:
    return (
        f"the tokeniser has no token for {named(sorted(set(characters)))} in {text!r}; "
        "train the tokeniser on transcripts with these characters, normalise the transcripts, "
        "or set task.unknown=leave_out"
    )
