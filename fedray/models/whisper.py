"""Whisper, from a checkpoint folder of transformers: an encoder of windows of 30 s and a decoder, without CTC.

Radford, Kim, Xu, Brockman, McLeavey, Sutskever. Robust Speech Recognition via Large-Scale Weak Supervision. ICML 2023.

The folder holds config.json, tokenizer.json and model.safetensors, as `save_pretrained` writes them; nothing is fetched. Each machine that
plays clients needs it at the same place. `fedray[whisper]` installs transformers.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from speechbrain.dataio.dataio import length_to_mask
from torch import Tensor, nn

FRAMES_A_SECOND = 100
QUIETEST = 2.0  # below the loudest bin of an utterance: 8 in log10, which features have divided by 4
OVERHANG = 2  # frames behind a clip that fills the window, which hear nothing but its last samples: Whisper leaves them out
SILENCE = -1.5  # of log10 of 1e-10, the least there is
FILES = ("config.json", "tokenizer.json")
BESIDES = (  # what `generate` and transformers' pipelines read besides, where a checkpoint has it
    "generation_config.json", "preprocessor_config.json", "processor_config.json", "tokenizer_config.json", "special_tokens_map.json",
    "added_tokens.json", "normalizer.json", "vocab.json", "merges.txt",
)  # fmt: skip


@dataclass(frozen=True)
class WhisperSettings:
    folder: str | None = None  # the checkpoint
    language: str | None = "en"  # null: of a checkpoint of one language, such as whisper-small.en
    seconds: float | None = None  # of speech that a window holds: shorter ones cost less, and give other numbers [ours]; null: all it can
    init: str | None = None  # a state dict to start from, instead of the folder's weights

    def __post_init__(self) -> None:
        if self.seconds is not None and self.seconds <= 0:
            raise ValueError(f"model.seconds must be above 0, not {self.seconds}")


def checked_folder(settings: WhisperSettings) -> Path:
    """The checkpoint. ValueError where files are missing."""
    if settings.folder is None:
        raise ValueError("model.folder is missing: the folder of a checkpoint, with config.json, tokenizer.json and model.safetensors")
    folder = Path(settings.folder).expanduser()
    missing = [name for name in FILES if not (folder / name).is_file()]
    if missing:
        raise ValueError(f"model.folder {folder} has no {' and no '.join(missing)}: give a checkpoint that save_pretrained has written")
    return folder


class Whisper(nn.Module):
    """`bins` Whisper log-mels a frame in, log-probabilities of its own tokens out. `vocabulary`: what the tokeniser knows."""

    Settings: ClassVar[type] = WhisperSettings
    hears: ClassVar[str] = "whisper"  # features.kind

    def __init__(self, settings: WhisperSettings, bins: int, vocabulary: int) -> None:
        super().__init__()
        try:
            from transformers import WhisperConfig, WhisperForConditionalGeneration
        except ImportError as error:
            raise ValueError('model.kind whisper needs transformers: pip install "fedray[whisper]"') from error
        folder = checked_folder(settings)
        self.folder, self.bins = folder, bins
        config = WhisperConfig.from_pretrained(folder)
        if config.num_mel_bins != bins:
            raise ValueError(f"model.folder {folder} hears {config.num_mel_bins} bins: set features.bins={config.num_mel_bins}, not {bins}")
        if vocabulary > config.vocab_size:
            raise ValueError(f"model.folder {folder}: its tokeniser has {vocabulary:,} tokens, its model {config.vocab_size:,}")
        self.prompt = prompt(folder, settings.language)
        self.window, self.longest = limits(settings)
        config.max_source_positions = self.window // 2
        self.bos, self.eos = self.prompt[-1], config.eos_token_id
        self.whisper = WhisperForConditionalGeneration(config)

    def load_pretrained(self) -> None:
        """The folder's weights; of the table of positions as many as the window has."""
        from transformers import WhisperForConditionalGeneration

        state = WhisperForConditionalGeneration.from_pretrained(self.folder).state_dict()
        name = "model.encoder.embed_positions.weight"
        state[name] = state[name][: self.window // 2]
        self.whisper.load_state_dict(state)

    def encode(self, features: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Features [B, T, bins] and lengths [B] in frames -> hidden states [B, window / 2, D] and their lengths, all alike: Whisper hears
        the silence behind an utterance too."""
        longest = int(lengths.max())
        if longest > self.window + OVERHANG:
            raise ValueError(
                f"an utterance of {longest / FRAMES_A_SECOND:g} s is too long: Whisper hears {self.window / FRAMES_A_SECOND:g}"
            )
        longest = min(longest, self.window)
        features = features[:, :longest]
        spoken = length_to_mask(lengths.to(features.device), longest, torch.bool)[..., None]
        loudest = features.masked_fill(~spoken, -torch.inf).amax((1, 2), keepdim=True)
        silence = (loudest - QUIETEST).clamp(min=SILENCE)
        heard = silence.expand(-1, self.window, self.bins).clone()
        heard[:, :longest] = torch.where(spoken, features, silence)
        hidden: Tensor = self.whisper.model.encoder(heard.transpose(1, 2)).last_hidden_state
        return hidden, torch.full_like(lengths, hidden.shape[1])

    def attend(self, hidden: Tensor, lengths: Tensor, tokens_bos: Tensor) -> Tensor:
        """Log-probabilities [B, L, tokens] of the token after each prefix of tokens_bos [B, L] (starts with `bos`, padded with any)."""
        log_probs: Tensor = self.attention_head(self.decode(hidden, lengths, tokens_bos)).log_softmax(-1)
        return log_probs

    def decode(self, hidden: Tensor, lengths: Tensor, tokens_bos: Tensor) -> Tensor:
        """What the head reads after each prefix, [B, L, D]. `bos` is the last token of the prompt; the others come before it here."""
        before = torch.tensor(self.prompt[:-1], dtype=tokens_bos.dtype, device=tokens_bos.device).expand(len(tokens_bos), -1)
        tokens = torch.cat([before, tokens_bos], 1)
        states: Tensor = self.whisper.model.decoder(tokens, encoder_hidden_states=hidden, use_cache=False).last_hidden_state
        return states[:, before.shape[1] :]

    @property
    def attention_head(self) -> nn.Module:
        return _Head(self.whisper.proj_out)

    @property
    def transformer(self) -> _Decoder:
        return _Decoder(self)

    def save_pretrained(self, folder: Path) -> None:
        """For transformers' `from_pretrained`, with what lies beside the checkpoint; a shorter window than the checkpoint's stays short."""
        self.whisper.save_pretrained(folder)
        for name in BESIDES:
            if (self.folder / name).is_file():
                shutil.copyfile(self.folder / name, folder / name)


class _Head(nn.Module):
    """A linear layer as SpeechBrain's searchers ask for it: its weights are found in `w`."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.w = linear

    def forward(self, states: Tensor) -> Tensor:
        logits: Tensor = self.w(states)
        return logits


class _Decoder:
    """The decoder as SpeechBrain's transformer searchers ask for it."""

    def __init__(self, model: Whisper) -> None:
        self._model = model

    def decode(self, tokens: Tensor, hidden: Tensor, lengths: Any) -> tuple[Tensor, None]:
        return self._model.decode(hidden, lengths, tokens.long()), None


def limits(settings: WhisperSettings) -> tuple[int, int]:
    """Frames that the window holds, and tokens that a text may have, its end included. ValueError for seconds that it does not hear."""
    folder = checked_folder(settings)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    window = 2 * int(config["max_source_positions"])
    if settings.seconds is not None:
        if settings.seconds * FRAMES_A_SECOND > window:
            raise ValueError(f"model.seconds={settings.seconds} is more than {folder} hears: {window / FRAMES_A_SECOND:g}")
        window = 2 * round(settings.seconds * FRAMES_A_SECOND / 2)
    return window, int(config["max_target_positions"]) - len(prompt_words(settings.language))


def prompt_words(language: str | None) -> list[str]:
    spoken = [] if language is None else [f"<|{language}|>", "<|transcribe|>"]
    return ["<|startoftranscript|>", *spoken, "<|notimestamps|>"]


def prompt(folder: Path, language: str | None) -> list[int]:
    """The tokens that begin every transcript. ValueError names one that the tokeniser does not know."""
    known = {row["content"]: row["id"] for row in json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))["added_tokens"]}
    wanted = prompt_words(language)
    missing = [token for token in wanted if token not in known]
    if missing:
        raise ValueError(f"{folder / 'tokenizer.json'}: has no {', '.join(missing)}: is model.language={language} among its languages?")
    return [known[token] for token in wanted]
