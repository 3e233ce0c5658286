"""Whisper, from a checkpoint folder of transformers: an encoder of 30 s windows and a decoder, without CTC.

Radford, Kim, Xu, Brockman, McLeavey, Sutskever. Robust Speech Recognition via Large-Scale Weak Supervision. ICML 2023.

The folder holds config.json, tokenizer.json and model.safetensors, as `save_pretrained` writes them; nothing is
downloaded. Every machine with client actors needs the folder at the same path. `fedray[whisper]` installs transformers.
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

from fedray.core.ranges import Positive, Ranged
from fedray.core.texts import parsed, read_text

SAMPLE_RATE, FRAMES_A_SECOND = 16_000, 100
QUIETEST = 2.0  # the lowest feature below the loudest one of an utterance: 8 in log10, divided by 4
OVERHANG = 2  # frames after a clip that fills the window, for its last samples: Whisper drops them
SILENCE = -1.5  # the lowest feature, of the power 1e-10
PROMPTS = ("transcribe", "translate")
FILES = ("config.json", "tokenizer.json")
BESIDES = (  # further files of a checkpoint that `generate` and transformers' pipelines read
    "generation_config.json",
    "preprocessor_config.json",
    "processor_config.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "normalizer.json",
    "vocab.json",
    "merges.txt",
)
EXTRACTORS = ("preprocessor_config.json", "processor_config.json")  # hold the window's length


@dataclass(frozen=True)
class WhisperSettings(Ranged):
    """Which checkpoint, and how to use it."""

    folder: str | None = None  # folder of the checkpoint
    # language of the speech; null: for a checkpoint of one language, such as whisper-small.en
    language: str | None = "en"
    # transcribe | translate: what the prompt asks for; Whisper has learnt to translate into English only
    prompt: str = "transcribe"
    # Seconds of a window. Shorter windows cost less and give other outputs [ours]. null: the window of the checkpoint.
    seconds: Positive | None = None
    init: str | None = None  # a file with initial weights, a state dict, instead of the folder's weights

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.prompt not in PROMPTS:
            raise ValueError(f"model.prompt must be {' or '.join(PROMPTS)}, not {self.prompt!r}")
        if self.language is None and self.prompt != PROMPTS[0]:
            raise ValueError(f"model.prompt={self.prompt} needs model.language: a checkpoint of one language has none")


def checked_folder(settings: WhisperSettings) -> Path:
    """The checkpoint's folder. ValueError: it is not set, or files are missing."""
    if settings.folder is None:
        raise ValueError(
            "model.folder is missing: set it to a checkpoint with config.json, tokenizer.json and model.safetensors"
        )
    folder = Path(settings.folder).expanduser()
    missing = [name for name in FILES if not (folder / name).is_file()]
    if missing:
        lacks = " and no ".join(missing)
        raise ValueError(f"model.folder {folder} has no {lacks}: set it to a checkpoint that save_pretrained wrote")
    return folder


class Whisper(nn.Module):
    """A recogniser: Whisper's log-mels [frames, bins] in, log-probabilities of Whisper's tokens out.

    `vocabulary`: the number of the tokeniser's tokens.
    """

    Settings: ClassVar[type] = WhisperSettings
    features_kind: ClassVar[str] = "whisper"  # the features.kind that it needs

    def __init__(self, settings: WhisperSettings, bins: int, vocabulary: int) -> None:
        super().__init__()
        try:
            from transformers import WhisperConfig, WhisperForConditionalGeneration
        except ImportError as error:
            raise ValueError('model.kind whisper needs transformers: pip install "fedray[whisper]"') from error
        folder = checked_folder(settings)
        self.folder, self.bins, self.seconds = folder, bins, settings.seconds
        config = WhisperConfig.from_pretrained(folder)
        if config.num_mel_bins != bins:
            wanted = config.num_mel_bins
            raise ValueError(f"model.folder {folder} needs {wanted} bins: set features.bins={wanted}, not {bins}")
        if vocabulary > config.vocab_size:
            raise ValueError(
                f"model.folder {folder}: the tokeniser has {vocabulary:,} tokens, the model {config.vocab_size:,}. "
                "Set model.folder to a complete checkpoint"
            )
        self.prompt = prompt(folder, settings)
        self.window, self.most_tokens = limits(settings)
        config.max_source_positions = self.window // 2
        self.bos, self.eos = self.prompt[-1], config.eos_token_id
        self.whisper = WhisperForConditionalGeneration(config)

    @staticmethod
    def limits(settings: WhisperSettings) -> tuple[int, int]:
        """The most frames of an utterance, and the most tokens of a text with its end."""
        window, most_tokens = limits(settings)
        return window + OVERHANG, most_tokens

    def load_pretrained(self) -> None:
        """Load the checkpoint's weights. The table of positions is cut to the window."""
        from transformers import WhisperForConditionalGeneration

        state = WhisperForConditionalGeneration.from_pretrained(self.folder).state_dict()
        name = "model.encoder.embed_positions.weight"
        state[name] = state[name][: self.window // 2]
        self.whisper.load_state_dict(state)

    def encode(self, features: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Features [B, T, bins] and lengths [B] in frames -> hidden states [B, window / 2, D] and their lengths.

        All lengths are window / 2, since Whisper encodes the silence after an utterance too. ValueError for an
        utterance that does not fit the window.
        """
        longest = int(lengths.max())
        if longest > self.window + OVERHANG:
            seconds = longest / FRAMES_A_SECOND
            raise ValueError(
                f"an utterance of {seconds:g} s is too long: Whisper's window has {self.window / FRAMES_A_SECOND:g} s"
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
        """Log-probabilities [B, L, tokens] of the token after each prefix of tokens_bos [B, L].

        A row of tokens_bos starts with `bos`; any token may pad its end.
        """
        log_probs: Tensor = self.attention_head(self.decode(hidden, lengths, tokens_bos)).log_softmax(-1)
        return log_probs

    def decode(self, hidden: Tensor, lengths: Tensor, tokens_bos: Tensor) -> Tensor:
        """The inputs of the head after each prefix, [B, L, D].

        `bos` is the last token of the prompt. The prompt's other tokens are put before it here.
        """
        before = torch.tensor(self.prompt[:-1], dtype=tokens_bos.dtype, device=tokens_bos.device).expand(
            len(tokens_bos), -1
        )
        tokens = torch.cat([before, tokens_bos], 1)
        states: Tensor = self.whisper.model.decoder(
            tokens, encoder_hidden_states=hidden, use_cache=False
        ).last_hidden_state
        return states[:, before.shape[1] :]

    @property
    def attention_head(self) -> nn.Module:
        """The output layer, as SpeechBrain's searchers need it."""
        return _Head(self.whisper.proj_out)

    @property
    def transformer(self) -> _Decoder:
        """The decoder, as SpeechBrain's searchers need it."""
        return _Decoder(self)

    def save_pretrained(self, folder: Path) -> None:
        """Write a folder for transformers' `from_pretrained`, with the checkpoint's further files and this window.

        transformers' feature extractor knows windows of whole seconds: for others its files are left out.
        """
        self.whisper.save_pretrained(folder)
        for name in BESIDES:
            if not (self.folder / name).is_file():
                continue
            if name not in EXTRACTORS or self.seconds is None:
                shutil.copyfile(self.folder / name, folder / name)
            elif self.window % FRAMES_A_SECOND == 0:
                text = json.dumps(self._extractor(self.folder / name), indent=2)
                (folder / name).write_text(text + "\n", encoding="utf-8")

    def _extractor(self, path: Path) -> dict[str, Any]:
        """The settings of the checkpoint's feature extractor, for this window. A processor's file may lack them."""
        found = _object(path)
        section = found if path.name == EXTRACTORS[0] else found.get("feature_extractor", {})
        samples = self.window // FRAMES_A_SECOND * int(section.get("sampling_rate", SAMPLE_RATE))
        section |= {"chunk_length": self.window // FRAMES_A_SECOND, "n_samples": samples, "nb_max_frames": self.window}
        return found


class _Head(nn.Module):
    """A wrapper that holds a linear layer in `w`, as SpeechBrain's searchers need it."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.w = linear

    def forward(self, states: Tensor) -> Tensor:
        logits: Tensor = self.w(states)
        return logits


class _Decoder:
    """The decoder as SpeechBrain's transformer searchers need it."""

    def __init__(self, model: Whisper) -> None:
        self._model = model

    def decode(self, tokens: Tensor, hidden: Tensor, lengths: Tensor) -> tuple[Tensor, None]:
        return self._model.decode(hidden, lengths, tokens.long()), None


def limits(settings: WhisperSettings) -> tuple[int, int]:
    """Frames of the window, and the most tokens of a text, including its end.

    ValueError for `seconds` beyond the checkpoint's window, and for a damaged config.json.
    """
    folder = checked_folder(settings)
    config = _object(folder / "config.json", "max_source_positions", "max_target_positions")
    window = 2 * int(config["max_source_positions"])
    if settings.seconds is not None:
        if settings.seconds * FRAMES_A_SECOND > window:
            raise ValueError(
                f"model.seconds={settings.seconds} is more than the window of {folder}: {window / FRAMES_A_SECOND:g} s"
            )
        window = 2 * round(settings.seconds * FRAMES_A_SECOND / 2)
    return window, int(config["max_target_positions"]) - len(prompt_words(settings))


def prompt_words(settings: WhisperSettings) -> list[str]:
    """The special tokens that begin every text, as text."""
    spoken = [] if settings.language is None else [f"<|{settings.language}|>", f"<|{settings.prompt}|>"]
    return ["<|startoftranscript|>", *spoken, "<|notimestamps|>"]


def prompt(folder: Path, settings: WhisperSettings) -> list[int]:
    """The ids of the tokens that begin every text. ValueError names those that the tokeniser lacks."""
    known = {row["content"]: row["id"] for row in _object(folder / "tokenizer.json", "added_tokens")["added_tokens"]}
    wanted = prompt_words(settings)
    missing = [token for token in wanted if token not in known]
    if missing:
        lacks = ", ".join(missing)
        raise ValueError(
            f"{folder / 'tokenizer.json'}: has no {lacks}: is model.language={settings.language} one of its languages?"
        )
    return [known[token] for token in wanted]


def _object(path: Path, *keys: str) -> dict[str, Any]:
    """The JSON object in a file of a checkpoint. ValueError: the file holds none, or it lacks one of the keys."""
    found = parsed(read_text(path), path)
    if not isinstance(found, dict) or (missing := [key for key in keys if key not in found]):
        lacks = f"has no {missing[0]}" if isinstance(found, dict) else "is not an object"
        raise ValueError(f"{path}: {lacks}: fetch the checkpoint again")
    return found
