"""Whisper's tokeniser, from its tokenizer.json."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from fedray.data.text.languages import SPACELESS
from fedray.storage.files import write_whole

if TYPE_CHECKING:
    from tokenizers import Tokenizer

TIMESTAMP = re.compile(r"<\|\d+\.\d\d\|>")
SPACED_START = re.compile(f"[^\\s{SPACELESS}]")


class PretrainedTokeniser:
    """Text to Whisper's token ids and back. It has no CTC blank.

    Whisper was trained on texts that begin with a space, except in scripts without spaces. Without that space,
    whisper-tiny.en gives the first token of a true transcript 8 nats less.
    """

    def __init__(self, described: str) -> None:
        """`described`: the contents of tokenizer.json."""
        self.described = described

    @classmethod
    def load(cls, folder: Path) -> PretrainedTokeniser:
        """Read tokenizer.json in the folder."""
        return cls((folder / "tokenizer.json").read_text(encoding="utf-8"))

    def __getstate__(self) -> dict[str, str]:
        return {"described": self.described}

    @functools.cached_property
    def _tokenizer(self) -> Tokenizer:
        from tokenizers import Tokenizer

        return Tokenizer.from_str(self.described)

    @property
    def size(self) -> int:
        """Tokens including the special ones."""
        return int(self._tokenizer.get_vocab_size(with_added_tokens=True))

    def encode(self, text: str, unknown: str = "refuse") -> list[int]:
        """Text to token ids, without special tokens.

        `unknown` has no effect: the tokens are bytes, so every character has one.
        """
        space = " " if SPACED_START.match(text) else ""
        return list(self._tokenizer.encode(space + text, add_special_tokens=False).ids)

    def decode(self, ids: Iterable[int]) -> str:
        """Token ids to text. Special tokens are skipped, Whisper's timestamps among them."""
        return TIMESTAMP.sub("", str(self._tokenizer.decode(list(ids), skip_special_tokens=True))).strip()

    def save(self, folder: Path) -> None:
        """Write tokenizer.json."""
        path = Path(folder) / "tokenizer.json"
        write_whole(path, self.described)
