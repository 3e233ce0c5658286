"""Whisper against transformers on a random checkpoint, and the paper's number of parameters on whisper-small."""

from __future__ import annotations

import csv
import itertools
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from fedray.core.parameters import FlatModel
from fedray.data.features import audio
from fedray.data.features.whisper_mel import WhisperMelSettings, whisper_frames, whisper_mels
from fedray.data.text.pretrained_tokeniser import PretrainedTokeniser
from fedray.models.adapters import LoRASettings, adapt, merged
from fedray.models.whisper import Whisper, WhisperSettings, in_window, limits, prompt
from fedray.training.decoding.attention import AttentionSearch
from fedray.training.decoding.search import DecodeSettings

transformers = pytest.importorskip("transformers")
from tests.small_speech import small_speech  # noqa: E402
from tests.whisper import BINS, GENERATION, SPECIAL, write_checkpoint  # noqa: E402 - they need transformers

WAVE = torch.from_numpy(np.random.default_rng(0).standard_normal(20_000).astype(np.float32) * 0.1)
SELF_ATTENTION = ["self_attn.*_proj", "fc[12]"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("whisper"))


@pytest.fixture(scope="module")
def tokens(folder: Path) -> PretrainedTokeniser:
    return PretrainedTokeniser.load(folder)


def built(folder: Path, tokens: PretrainedTokeniser, **settings: object) -> Whisper:
    model = Whisper(WhisperSettings(str(folder), **settings), BINS, tokens.size)
    model.load_pretrained()
    return model.eval()


@pytest.mark.parametrize("loudness", [1.0, 0.1, 0.01])
def test_features_are_those_of_transformers(loudness: float, folder: Path, tokens: PretrainedTokeniser) -> None:
    """Features, and the silence that the model appends, are those of transformers, also for quiet speech."""
    extractor = transformers.WhisperFeatureExtractor(feature_size=BINS)
    expected = extractor(loudness * WAVE.numpy(), sampling_rate=16000, return_tensors="np").input_features[0].T
    found = whisper_mels(loudness * WAVE, BINS).numpy()
    assert len(found) == whisper_frames(len(WAVE)) == 127
    assert np.allclose(found, expected[: len(found)], atol=2e-4)
    model, heard = built(folder, tokens), []
    model.whisper.model.encoder.register_forward_pre_hook(lambda _, inputs: heard.append(inputs[0][0].T.numpy()))
    with torch.no_grad():
        model.encode(torch.from_numpy(found)[None], torch.tensor([len(found)]))
    assert np.allclose(heard[0], expected[: model.window], atol=2e-4)
    assert WhisperMelSettings(80).frames(1.25) == 127
    with pytest.raises(ValueError, match=r"features.kind=whisper allows one setting only: set features.normalise=none"):
        WhisperMelSettings(80, normalise="mean")


def test_it_says_what_transformers_say(folder: Path, tokens: PretrainedTokeniser) -> None:
    """A batch of two utterances, one of them padded, gives what transformers give for each alone."""
    model = built(folder, tokens)
    theirs = transformers.WhisperForConditionalGeneration.from_pretrained(folder).eval()
    parts = [whisper_mels(WAVE, BINS), whisper_mels(WAVE[:9_000], BINS)]
    features = torch.nn.utils.rnn.pad_sequence(parts, batch_first=True)
    text = torch.tensor([tokens.encode("ab c"), tokens.encode("cab ")])
    with torch.no_grad():
        hidden, lengths = model.encode(features, torch.tensor([len(part) for part in parts]))
        assert hidden.shape == (2, 150, 16) and lengths.tolist() == [64, 29]
        ours = model.attend(hidden, lengths, torch.cat([torch.full((2, 1), model.bos), text], 1))
        for row, part in enumerate(parts):
            heard = torch.full((300, BINS), float(part.max()) - 2)
            heard[: len(part)] = part
            ids = torch.tensor([[*model.prompt, *text[row].tolist()]])
            logits = theirs(input_features=heard.T[None], decoder_input_ids=ids).logits[0, len(model.prompt) - 1 :]
            assert torch.allclose(ours[row], logits.log_softmax(-1), atol=1e-5)


def test_a_shorter_window_has_the_first_positions(folder: Path, tokens: PretrainedTokeniser) -> None:
    name = "model.encoder.embed_positions.weight"
    whole, short = (built(folder, tokens, seconds=seconds).whisper.state_dict()[name] for seconds in (None, 1.0))
    assert len(short) == 50 < len(whole) and torch.equal(short, whole[:50])


def test_greedy_and_beam_search_end_within_what_it_can_say(folder: Path, tokens: PretrainedTokeniser) -> None:
    model = built(folder, tokens)
    mels = whisper_mels(WAVE, BINS)
    with torch.no_grad():
        hidden, lengths = model.encode(mels[None], torch.tensor([len(mels)]))
    for beam in (1, 3):
        (found,) = AttentionSearch(DecodeSettings("attention", beam=beam, ctc_weight=0.0), tokens.decode).transcribe(
            model, hidden, lengths
        )
        assert len(found.tokens) <= model.most_tokens and np.isfinite(found.score)
    said: list[int] = []
    (greedy,) = AttentionSearch(DecodeSettings("attention", beam=1, ctc_weight=0.0), tokens.decode).transcribe(
        model, hidden, lengths
    )
    with torch.no_grad():
        while len(said) < len(greedy.tokens):
            said.append(int(model.attend(hidden, lengths, torch.tensor([[model.bos, *said]]))[0, -1].argmax()))
    assert tuple(said) == greedy.tokens


@pytest.mark.parametrize("beam", [1, 2])
def test_it_suppresses_the_tokens_that_generate_suppresses(
    beam: int, folder: Path, tokens: PretrainedTokeniser, tmp_path: Path
) -> None:
    """Those that generation_config.json names: at the beginning of a text, and everywhere."""
    model, mels = built(folder, tokens), whisper_mels(WAVE, BINS)
    search = AttentionSearch(DecodeSettings("attention", beam=beam, ctc_weight=0.0), tokens.decode)
    with torch.no_grad():
        hidden, lengths = model.encode(mels[None], torch.tensor([len(mels)]))
    (free,) = search.transcribe(model, hidden, lengths)
    ruled_out = {"begin_suppress_tokens": [free.tokens[0]], "suppress_tokens": [free.tokens[-1]]}
    shutil.copytree(folder, tmp_path / "whisper")
    (tmp_path / "whisper" / "generation_config.json").write_text(json.dumps(GENERATION | ruled_out), encoding="utf-8")
    (ours,) = search.transcribe(built(tmp_path / "whisper", tokens), hidden, lengths)
    assert ours.tokens[0] not in (free.tokens[0], free.tokens[-1]) and free.tokens[-1] not in ours.tokens
    if beam == 1:
        theirs = transformers.WhisperForConditionalGeneration.from_pretrained(tmp_path / "whisper").eval()
        heard = in_window(mels[None], lengths.new_tensor([len(mels)]), model.window).transpose(1, 2)
        limit = len(ours.tokens) + len(model.prompt)
        said = theirs.generate(heard, language="en", task="transcribe", max_length=limit)
        assert list(ours.tokens) == said[0].tolist()[: len(ours.tokens)]


def test_a_shorter_window(folder: Path, tokens: PretrainedTokeniser) -> None:
    model = built(folder, tokens, seconds=2.0)
    mels = whisper_mels(WAVE, BINS)
    assert model.encode(mels[None], torch.tensor([len(mels)]))[0].shape[1] == 100
    full = torch.zeros(1, whisper_frames(32_000), BINS)
    assert full.shape[1] == 202 and model.encode(full, torch.tensor([202]))[0].shape[1] == 100, "a clip of two seconds"
    with pytest.raises(ValueError, match="an utterance of 2.4 s is too long: Whisper's window has 2 s"):
        model.encode(torch.zeros(1, 240, BINS), torch.tensor([240]))
    with pytest.raises(ValueError, match="model.seconds=9.0 is more than the window of .*: 3 s"):
        built(folder, tokens, seconds=9.0)
    with pytest.raises(ValueError, match="seconds must be at least 0.02, not 0.01"):
        WhisperSettings(seconds=0.01)


def test_text_and_tokens(tokens: PretrainedTokeniser) -> None:
    assert tokens.decode(tokens.encode("déjà vu")) == "déjà vu"
    special = [tokens.size - 1 - place for place in range(len(SPECIAL))]
    assert tokens.decode([*special, *tokens.encode("so")]) == "so"


def test_a_text_begins_with_a_space_as_in_whispers_training(tokens: PretrainedTokeniser) -> None:
    assert tokens.encode("so") == tokens.encode(" so") == tokens.encode("a so")[2:]
    assert len(tokens.encode("你")) == 3 and tokens.encode("") == []  # a byte each, and no space


def test_what_is_missing_is_named(folder: Path, tokens: PretrainedTokeniser, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="model.folder is missing"):
        Whisper(WhisperSettings(), BINS, tokens.size)
    with pytest.raises(ValueError, match=r"has no config.json and no tokenizer.json"):
        Whisper(WhisperSettings(str(tmp_path)), BINS, tokens.size)
    with pytest.raises(ValueError, match=r"has no <\|fr\|>: is model.language=fr one of its languages"):
        built(folder, tokens, language="fr")
    with pytest.raises(ValueError, match="needs 80 bins: set features.bins=80, not 40"):
        Whisper(WhisperSettings(str(folder)), 40, tokens.size)


def test_a_checkpoint_for_english_takes_no_language(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "english")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps(config | {"vocab_size": 51864}), encoding="utf-8")
    assert len(prompt(folder, WhisperSettings(language=None))) == 2
    with pytest.raises(ValueError, match=r"for English alone, .*: set model.language=null"):
        prompt(folder, WhisperSettings(language="en"))


def test_damaged_files_are_named(tmp_path: Path, tokens: PretrainedTokeniser) -> None:
    folder = write_checkpoint(tmp_path / "checkpoint")
    whole = (folder / "tokenizer.json").read_text(encoding="utf-8")
    for name, text, words in (
        ("tokenizer.json", "{}", "has no added_tokens: fetch the checkpoint again"),
        ("tokenizer.json", whole[:20], "is not JSON"),
        ("config.json", '{"max_target_positions": 9}', "has no max_source_positions"),
        ("config.json", "[1]", "is not an object"),
    ):
        (folder / name).write_text(text, encoding="utf-8")
        with pytest.raises(ValueError, match=rf"{name}.*{words}"):
            prompt(folder, WhisperSettings(str(folder))) if name[0] == "t" else limits(WhisperSettings(str(folder)))
    with pytest.raises(ValueError, match="model.prompt=translate needs model.language"):
        WhisperSettings(str(folder), language=None, prompt="translate")


@pytest.mark.parametrize(("seconds", "frames"), [(2.0, 200), (1.5, None), (None, 3000)])
def test_a_checkpoint_comes_with_the_extractor_of_its_window(
    seconds: float | None, frames: int | None, tmp_path: Path, tokens: PretrainedTokeniser
) -> None:
    folder = write_checkpoint(tmp_path / "checkpoint")
    transformers.WhisperFeatureExtractor(feature_size=BINS).save_pretrained(folder)
    (folder / "processor_config.json").write_text('{"processor_class": "WhisperProcessor"}', encoding="utf-8")
    built(folder, tokens, seconds=seconds).save_pretrained(tmp_path / "model")
    if frames is None:
        assert not (tmp_path / "model" / "preprocessor_config.json").exists(), "transformers know whole seconds"
    else:
        extractor = transformers.WhisperFeatureExtractor.from_pretrained(tmp_path / "model")
        found = extractor(WAVE.numpy(), sampling_rate=16000, return_tensors="np").input_features
        assert found.shape == (1, BINS, frames)
        written = json.loads((tmp_path / "model" / "processor_config.json").read_text(encoding="utf-8"))
        assert written == {"processor_class": "WhisperProcessor"}
    if seconds is None:
        name = "preprocessor_config.json"
        assert (tmp_path / "model" / name).read_bytes() == (folder / name).read_bytes(), "as pipelines want it"


def test_what_two_modules_share_has_no_adapter(folder: Path, tokens: PretrainedTokeniser) -> None:
    """An adapter would change a shared weight only as an embedding, but merging it would change it as the head too."""
    model = adapt(built(folder, tokens), LoRASettings(targets=[".*"]))
    assert not any("embed_tokens" in name or "proj_out" in name for name in model.state_dict() if name.endswith(".a"))
    with pytest.raises(ValueError, match="'embed_tokens' matches no weight that one module holds alone"):
        adapt(built(folder, tokens), LoRASettings(targets=["embed_tokens"]))
    for name, parameter in model.named_parameters():
        if name.endswith(".b"):
            torch.nn.init.normal_(parameter, std=0.3)
    plain = FlatModel(built(folder, tokens))
    plain.load(plain.layout.join(merged(model)))
    mels, text = whisper_mels(WAVE, BINS), torch.tensor([[model.bos, *tokens.encode("ab c")]])
    with torch.no_grad():
        ours, theirs = (
            each.attend(*each.encode(mels[None], torch.tensor([len(mels)])), text)
            for each in (model.eval(), plain.model.eval())
        )
    assert torch.allclose(ours, theirs, atol=1e-4)


def test_the_papers_adapters_on_whisper_small() -> None:
    """Rank 32 on self-attention and both feed-forward matrices gives 10,616,832 parameters (the paper's 10.1 Mi)."""
    sizes = {
        "d_model": 768,
        "encoder_layers": 12,
        "decoder_layers": 12,
        "encoder_attention_heads": 12,
        "decoder_attention_heads": 12,
    }
    config = transformers.WhisperConfig(**sizes, encoder_ffn_dim=3072, decoder_ffn_dim=3072)
    with torch.device("meta"):
        model = transformers.WhisperForConditionalGeneration(config)
        adapt(model, LoRASettings(rank=32, alpha=64, targets=SELF_ATTENTION))
    assert sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad) == 10_616_832


@pytest.mark.long
def test_texts_of_real_speech_are_those_of_generate() -> None:
    """Sixteen utterances in two batches, decoded greedily in the full window."""
    folder, speech = small_speech("whisper-tiny.en"), small_speech("speechocean-mini")
    tokens = PretrainedTokeniser.load(folder)
    model = Whisper(WhisperSettings(str(folder), language=None), 80, tokens.size)
    model.load_pretrained()
    theirs = transformers.WhisperForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).eval()
    search = AttentionSearch(DecodeSettings("attention", beam=1, ctc_weight=0.0), tokens.decode)
    with (speech / "manifest.tsv").open(encoding="utf-8") as file:
        paths = [speech / row["path"] for row in itertools.islice(csv.DictReader(file, delimiter="\t"), 16)]
    parts = [whisper_mels(audio.read(path, 16_000), 80) for path in paths]
    for batch in (parts[:8], parts[8:]):
        lengths = torch.tensor([len(part) for part in batch])
        features = torch.nn.utils.rnn.pad_sequence(batch, batch_first=True)
        with torch.no_grad():
            ours = search.transcribe(model.eval(), *model.encode(features, lengths))
            heard = in_window(features, lengths, model.window).transpose(1, 2)
            said = theirs.generate(heard, max_new_tokens=100)
        texts = [tokens.decode(row[row < theirs.config.eos_token_id].tolist()) for row in said]
        assert [one.text for one in ours] == texts
