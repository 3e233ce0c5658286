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
from torch import Tensor, nn

from fedray.core.ranges import Ranged, WhisperSeconds, one_of
from fedray.models.checkpoint import CONFIG, check_weights, located, read_object
from fedray.models.padding import padding
from fedray.models.steps import Attention, Layer, Steps, TransformerSteps

SAMPLE_RATE, FRAMES_A_SECOND = 16_000, 100
ENGLISH = 51_864  # tokens of the checkpoints for English alone; those of many languages have more
QUIETEST = 2.0  # the lowest feature below the loudest one of an utterance: 8 in log10, divided by 4
OVERHANG = 2  # frames after a clip that fills the window, for its last samples: Whisper drops them
SILENCE = -1.5  # the lowest feature, of the power 1e-10
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

    folder: str | None = None  # folder of the checkpoint, or its name on Hugging Face's hub, OWNER/MODEL
    revision: str | None = None  # of a name on the hub: branch, tag or commit; null: its main branch
    # language of the speech; null: for a checkpoint of one language, such as whisper-small.en
    language: str | None = "en"
    # transcribe | translate: what the prompt asks for; Whisper has learnt to translate into English only
    prompt: str = one_of(("transcribe", "translate"))
    # Seconds of a window. Shorter windows cost less and give other outputs [ours]. null: the window of the checkpoint.
    seconds: WhisperSeconds | None = None
    init: str | None = None  # a file with initial weights, a state dict, instead of the folder's weights

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.language is None and self.prompt != "transcribe":
            raise ValueError(f"model.prompt={self.prompt} needs model.language: a checkpoint of one language has none")


def checked_folder(settings: WhisperSettings) -> Path:
    """The checkpoint's folder. ValueError: it is not set, or files are missing."""
    if settings.folder is None:
        raise ValueError(
            "model.folder is missing: set it to a checkpoint with config.json, tokenizer.json and model.safetensors"
        )
    folder = located(settings.folder, settings.revision)
    if not folder.is_dir():
        raise ValueError(f"model.folder: there is no folder {folder.absolute()}")
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
    # The longest text of a search: tokens per encoder frame of speech, of which a second has 50, and how many more.
    text_limit: ClassVar[tuple[float, int]] = (0.2, 10)

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
        self.suppressed = suppressed(folder)
        self.bos, self.eos = self.prompt[-1], config.eos_token_id
        self.whisper = WhisperForConditionalGeneration(config)

    @staticmethod
    def derived(settings: WhisperSettings, task: str, algorithm: str) -> dict[str, Any]:
        """Key of a configuration -> the value that fits the checkpoint, for keys that the user does not set."""
        found: dict[str, Any] = {
            "features.kind": "whisper",
            "task.augment": {"time_masks": 0, "frequency_masks": 0},
            "algorithm.pretrain": {"steps": 0},
        }
        if task != "classification":
            found |= {"task.tokens": "pretrained", "task.ctc_weight": 0.0, "task.decode.search": "attention"}
            found |= {"task.decode.ctc_weight": 0.0} | ({"model.prompt": "translate"} if task == "translation" else {})
        if algorithm == "fedlora":
            found["algorithm.lora.targets"] = ["self_attn.*_proj", "fc[12]"]
        if settings.folder is not None:
            config = read_object(checked_folder(settings) / CONFIG, "num_mel_bins", "vocab_size")
            found["features.bins"] = config["num_mel_bins"]
            if config["vocab_size"] == ENGLISH:
                found["model.language"] = None
        return found

    @staticmethod
    def limits(settings: WhisperSettings) -> tuple[int, int]:
        """The most frames of an utterance, and the most tokens of a text with its end."""
        window, most_tokens = limits(settings)
        return window + OVERHANG, most_tokens

    def load_pretrained(self) -> None:
        """Load the checkpoint's weights. The table of positions is cut to the window."""
        from transformers import WhisperForConditionalGeneration

        check_weights(self.folder)
        state = WhisperForConditionalGeneration.from_pretrained(
            self.folder, dtype=torch.float32, use_safetensors=True, local_files_only=True
        ).state_dict()
        name = "model.encoder.embed_positions.weight"
        state[name] = state[name][: self.window // 2]
        self.whisper.load_state_dict(state)

    def encode(self, features: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Features [B, T, bins] and lengths [B] in frames -> hidden states [B, window / 2, D] and their lengths.

        The lengths count the speech; the decoder attends to the silence after it too. ValueError for an utterance that
        does not fit the window.
        """
        if (longest := int(lengths.max())) > self.window + OVERHANG:
            seconds, most = longest / FRAMES_A_SECOND, self.window / FRAMES_A_SECOND
            raise ValueError(f"an utterance of {seconds:g} s is too long: Whisper's window has {most:g} s")
        heard = in_window(features, lengths, self.window)
        hidden: Tensor = self.whisper.model.encoder(heard.transpose(1, 2)).last_hidden_state
        return hidden, ((lengths + 1) // 2).clamp(max=hidden.shape[1])

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

    def steps(self, hidden: Tensor, lengths: Tensor, beam: int) -> Steps:
        """The decoder, after the prompt, for a search with `beam` hypotheses for each utterance."""
        decoder = self.whisper.model.decoder

        def embed(tokens: Tensor, position: int) -> Tensor:
            states: Tensor = decoder.embed_tokens(tokens) + decoder.embed_positions.weight[position]
            return states

        layers = [decoder_layer(layer) for layer in decoder.layers]
        steps = TransformerSteps(layers, embed, decoder.layer_norm, hidden, None, beam)
        for token in self.prompt[:-1]:
            steps(torch.full((len(hidden) * beam,), token, device=hidden.device))
        return steps

    @property
    def attention_head(self) -> nn.Module:
        """The output layer."""
        head: nn.Module = self.whisper.proj_out
        return head

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
        found = read_object(path)
        section = found if path.name == EXTRACTORS[0] else found.get("feature_extractor", {})
        samples = self.window // FRAMES_A_SECOND * int(section.get("sampling_rate", SAMPLE_RATE))
        section |= {"chunk_length": self.window // FRAMES_A_SECOND, "n_samples": samples, "nb_max_frames": self.window}
        return found


def in_window(features: Tensor, lengths: Tensor, window: int) -> Tensor:
    """Features [B, T, bins] and lengths [B] in frames -> what Whisper's encoder reads, [B, window, bins].

    Silence, 8 below the loudest feature of an utterance in log10, follows the utterance.
    """
    longest = min(features.shape[1], window)
    spoken = ~padding(lengths.to(features.device), longest)[..., None]
    features = features[:, :longest]
    loudest = features.masked_fill(~spoken, -torch.inf).amax((1, 2), keepdim=True)
    silence = (loudest - QUIETEST).clamp(min=SILENCE)
    heard = torch.where(spoken, features, silence)
    return torch.cat([heard, silence.expand(-1, window - longest, features.shape[2])], 1)


def decoder_layer(layer: Any) -> Layer:
    """A `WhisperDecoderLayer` of transformers for one token at a time."""
    norms = (layer.self_attn_layer_norm, layer.encoder_attn_layer_norm, layer.final_layer_norm)
    own, encoder = (
        Attention(module.q_proj, module.k_proj, module.v_proj, module.out_proj, module.num_heads)
        for module in (layer.self_attn, layer.encoder_attn)
    )
    return Layer(norms, own, encoder, lambda states: layer.fc2(layer.activation_fn(layer.fc1(states))))


def limits(settings: WhisperSettings) -> tuple[int, int]:
    """Frames of the window, and the most tokens of a text, including its end.

    ValueError for `seconds` beyond the checkpoint's window, and for a damaged config.json.
    """
    folder = checked_folder(settings)
    config = read_object(folder / "config.json", "max_source_positions", "max_target_positions")
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
    """The ids of the tokens that begin every text. ValueError: the checkpoint lacks them, or never begins with them."""
    if settings.language is not None and read_object(folder / CONFIG, "vocab_size")["vocab_size"] == ENGLISH:
        why = f"{folder} is for English alone, and its texts begin without a language"
        raise ValueError(f"model.language={settings.language}: {why}: set model.language=null")
    added = read_object(folder / "tokenizer.json", "added_tokens")["added_tokens"]
    known = {row["content"]: row["id"] for row in added}
    wanted = prompt_words(settings)
    if missing := [token for token in wanted if token not in known]:
        lacks = ", ".join(missing)
        raise ValueError(
            f"{folder / 'tokenizer.json'}: has no {lacks}: is model.language={settings.language} one of its languages?"
        )
    return [known[token] for token in wanted]


def suppressed(folder: Path) -> tuple[list[int], list[int]]:
    """The tokens that begin no text, such as its end, and those that no text has; transformers reads the same files."""
    generation = folder / "generation_config.json"
    config = read_object(generation if generation.is_file() else folder / CONFIG)
    return config.get("begin_suppress_tokens") or [], config.get("suppress_tokens") or []
