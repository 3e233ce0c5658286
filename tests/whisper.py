"""A tiny Whisper checkpoint with random weights and a byte tokeniser."""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import WhisperConfig, WhisperForConditionalGeneration

SPECIAL = ("<|endoftext|>", "<|startoftranscript|>", "<|en|>", "<|transcribe|>", "<|notimestamps|>")
BINS = 80
GENERATION = {  # generation_config.json, like whisper-small's
    "bos_token_id": 256,
    "eos_token_id": 256,
    "pad_token_id": 256,
    "decoder_start_token_id": 257,
    "no_timestamps_token_id": 260,
    "is_multilingual": True,
    "lang_to_id": {"<|en|>": 258},
    "task_to_id": {"transcribe": 259},
    "max_length": 64,
}


def write_checkpoint(folder: Path, seconds: float = 3.0, width: int = 16, special: tuple[str, ...] = SPECIAL) -> Path:
    """Write the checkpoint to `folder` as `save_pretrained` does, and return the folder."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: place for place, letter in enumerate(letters)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in special])
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    end = tokenizer.token_to_id(SPECIAL[0])
    torch.manual_seed(0)
    config = WhisperConfig(
        vocab_size=tokenizer.get_vocab_size(),
        num_mel_bins=BINS,
        d_model=width,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=2 * width,
        decoder_ffn_dim=2 * width,
        max_source_positions=round(50 * seconds),
        max_target_positions=64,
        bos_token_id=end,
        eos_token_id=end,
        pad_token_id=end,
        decoder_start_token_id=tokenizer.token_to_id(SPECIAL[1]),
        suppress_tokens=None,
        begin_suppress_tokens=None,
    )
    WhisperForConditionalGeneration(config).save_pretrained(folder)
    return folder
