"""The tokeniser of a pre-trained model, from its tokenizer.json."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fedray.core.cache import write_atomically


class PretrainedTokens:
    """Text to token ids and back as the model has learnt them; special tokens are no text. No token is a CTC blank."""

    def __init__(self, described: str) -> None:
        """`described`: the contents of tokenizer.json."""
        self.described = described

    @classmethod
    def load(cls, folder: Path) -> PretrainedTokens:
        return cls((folder / "tokenizer.json").read_text(encoding="utf-8"))

    def __getstate__(self) -> dict[str, Any]:
        return {"described": self.described}

    @functools.cached_property
    def _tokenizer(self) -> Any:
        from tokenizers import Tokenizer

        return Tokenizer.from_str(self.described)

    @property
    def size(self) -> int:
        """Tokens including the special ones."""
        return int(self._tokenizer.get_vocab_size(with_added_tokens=True))

    def encode(self, text: str, unknown: str = "refuse") -> list[int]:
        """Every character has tokens: they are made of bytes."""
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: Iterable[int]) -> str:
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=True)).strip()

    def save(self, folder: Path) -> None:
        write_atomically(Path(folder) / "tokenizer.json", lambda path: path.write_text(self.described, encoding="utf-8"))
