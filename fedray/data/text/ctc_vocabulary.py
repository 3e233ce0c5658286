"""The tokens of a CTC checkpoint of transformers: characters, from its vocab.json, with the blank first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from fedray.core.texts import parsed, read_text
from fedray.data.text.tokenisers import BLANK, Characters

SPECIAL = {"pad_token": "<pad>", "word_delimiter_token": "|", "unk_token": "<unk>"}  # defaults of Wav2Vec2CTCTokenizer
FILES = ("special_tokens_map.json", "tokenizer_config.json")  # the second one counts


class CTCVocabulary:
    """A tokeniser with one token for each character. Other tokens of the checkpoint, such as <unk>, are never written.

    `places[i]` is the place of token i in the checkpoint's outputs; `tokens[0]` is the blank.
    """

    blank = 0

    def __init__(self, tokens: Sequence[str], places: Sequence[int], fold: str | None = None) -> None:
        """`fold`: lower or upper: the case of texts, where the tokens have the other one alone; None: their own."""
        self.tokens, self.places, self.fold = list(tokens), list(places), fold
        single = {token: at for at, token in enumerate(self.tokens) if len(token) == 1}
        self._characters = Characters([BLANK, *single])
        self._ids = [0, *single.values()]  # of the characters' tokens
        self._alone = set(self._ids)

    @classmethod
    def load(cls, path: Path, texts: Iterable[str] = ()) -> CTCVocabulary:
        """Read vocab.json and, beside it, which of its tokens are special.

        Tokens of one case alone write texts of the other case alone. ValueError: a file is damaged, or the tokens are
        those of several languages.
        """
        found = parsed(read_text(path), path)
        if isinstance(found, dict) and found and all(isinstance(value, dict) for value in found.values()):
            raise ValueError(
                f"{path}: holds the tokens of several languages: keep those of one, or set task.tokens=characters"
            )
        places = list(found.values()) if isinstance(found, dict) else []
        whole = all(type(place) is int for place in places)
        if not places or not whole or sorted(places) != list(range(len(places))):
            raise ValueError(f"{path}: is not an object of tokens and their places, 0, 1, 2, ...: fetch it again")
        special = _special(path.parent)
        pad, delimiter = special["pad_token"], special["word_delimiter_token"]
        if pad not in found:
            raise ValueError(f"{path}: has no {pad}, the padding, which is CTC's blank: fetch the checkpoint again")
        order = sorted(found, key=lambda token: (token != pad, found[token]))
        tokens = [BLANK if token == pad else " " if token == delimiter else token for token in order]
        twice = [token for token, count in Counter(tokens).items() if count > 1]
        if twice:
            raise ValueError(f"{path}: lists {twice[0]!r} twice, once as {delimiter!r}: fetch the checkpoint again")
        letters, spoken = "".join(token for token in tokens if len(token) == 1), "".join(texts)
        fold = None
        if letters == letters.upper() != letters.lower() and spoken == spoken.lower() != spoken.upper():
            fold = "lower"
        elif letters == letters.lower() != letters.upper() and spoken == spoken.upper() != spoken.lower():
            fold = "upper"
        return cls(tokens, [found[token] for token in order], fold)

    @property
    def size(self) -> int:
        """Tokens including the blank."""
        return len(self.tokens)

    def encode(self, text: str, unknown: str = "refuse") -> list[int]:
        """Text to token ids. ValueError names characters without a token; with unknown="leave_out" they are skipped."""
        if self.fold is not None:
            text = text.upper() if self.fold == "lower" else text.lower()
        return [self._ids[at] for at in self._characters.encode(text, unknown)]

    def decode(self, ids: Iterable[int]) -> str:
        """Token ids to text. Blanks and special tokens are skipped."""
        text = "".join(self.tokens[index] for index in ids if index in self._alone and index != self.blank)
        return {"lower": str.lower, "upper": str.upper}.get(self.fold or "", str)(text)

    def save(self, folder: Path) -> None:
        """Write tokens.txt, in the order of the tokens."""
        Characters(self.tokens).save(folder)


def _special(folder: Path) -> dict[str, str]:
    """The special tokens of a tokeniser."""
    found = dict(SPECIAL)
    for path in (folder / name for name in FILES):
        given: Any = parsed(read_text(path), path) if path.is_file() else {}
        for name in SPECIAL:
            token = given.get(name) if isinstance(given, dict) else None
            if isinstance(token, dict):
                token = token.get("content")
            if isinstance(token, str):
                found[name] = token
    return found
