"""SpeechBrain's CRDNN (convolutions, recurrent and dense layers) with a CTC head and, optionally, a GRU decoder.

The recogniser of Gao et al. (2022) and of SpeechBrain's seq2seq recipes; the decoder has location-aware attention.
Every part with weights is a SpeechBrain module, so a saved model loads without fedray.

Padding has no effect here. In SpeechBrain the convolutions, the backward LSTM and batch norm all read it. Here the
convolutions see the end of each utterance reflected, recurrent layers stop at the end, and batch norm takes its
statistics from frames of speech only.
"""

from __future__ import annotations

import warnings
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, ClassVar

from speechbrain.lobes.models.CRDNN import CRDNN as SpeechBrainCRDNN
from speechbrain.nnet.CNN import Conv2d
from speechbrain.nnet.embedding import Embedding
from speechbrain.nnet.linear import Linear
from speechbrain.nnet.RNN import GRU, LSTM, AttentionalRNNDecoder
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from fedray.core.ranges import Count, Natural, Part, Ranged, one_of
from fedray.models.heads import Heads
from fedray.models.kernels import on_cpu
from fedray.models.norms import batch_norms
from fedray.models.padding import Reflect, padding, several_clients, shortest_of
from fedray.models.steps import RecurrentSteps, Steps
from fedray.models.unpacked import norm_of_speech, recurrent

RNNS = {"lstm": LSTM, "gru": GRU}
KERNEL = (3, 3)  # frames, bins: the only size that `Reflect` supports


@dataclass(frozen=True)
class CRDNNSettings(Ranged):
    """The sizes of a CRDNN. The defaults give a model of 0.5M parameters that trains on a CPU.

    Gao et al. have channels=[128, 200], rnn_layers=5, rnn_neurons=1024, dnn_blocks=2, dnn_neurons=1024,
    decoder_layers=1, decoder_neurons=1024, attention=1024, attention_channels=10, attention_kernel=100, embedding=128,
    bos=0, eos=0; SpeechBrain's recipe for Common Voice has a third block of 256 channels. The decoder's `bos` and
    `eos` are by default two tokens after the vocabulary; in the recipes both are the blank, 0.
    """

    channels: tuple[Count, ...] = (16, 32)  # channels of each block, which has two convolutions and halves the bins
    time_pooling: Count = 4  # frames that are pooled into one
    rnn: str = one_of(RNNS)  # lstm | gru
    rnn_layers: Count = 1  # layers of the recurrent encoder, in both directions
    rnn_neurons: Count = 128  # width of the recurrent layers in each direction
    dnn_blocks: Count = 1  # fully connected blocks after the recurrent layers
    dnn_neurons: Count = 128  # width of each of these blocks
    dropout: Part = 0.1  # share of the activations that training drops
    decoder_layers: Natural = 0  # recurrent layers of the decoder; 0: CTC only
    decoder_neurons: Count = 128  # width of the decoder
    attention: Count = 128  # width of the location-aware attention
    attention_channels: Count = 10  # filters over the previous attention weights
    attention_kernel: Count = 15  # encoder frames that these filters see on either side
    embedding: Count = 64  # width of the decoder's token embedding
    bos: Natural | None = None  # token that starts a text; null: the first token after the vocabulary
    eos: Natural | None = None  # token that ends a text; null: the second token after the vocabulary
    init: str | None = None  # a file with initial weights: a state dict of the same model, or of SpeechBrain's recipes

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.channels:
            raise ValueError("model.channels must name at least one block")
        if (self.bos is None) != (self.eos is None):
            raise ValueError(
                "model.bos and model.eos must be set together, or not at all (then they follow the vocabulary)"
            )


class CRDNN(Heads):
    """A recogniser: log-mels [frames, bins] in, log-probabilities [frames // time_pooling, vocabulary] out.

    Token 0 is the CTC blank.
    """

    Settings: ClassVar[type] = CRDNNSettings
    recipe: ClassVar[tuple[str, ...]] = ("encoder", "embedding", "decoder", "ctc_head", "attention_head")
    # For example.py: how SpeechBrain's parts encode one utterance.
    example: ClassVar[str] = 'model["encoder"](mels[None])'

    clients_together: ClassVar[str] = "equal batches"  # batch norm counts all utterances of a batch

    def __init__(self, settings: CRDNNSettings, bins: int, vocabulary: int, ctc: int | None = None) -> None:
        """`ctc`: the number of CTC tokens if the decoder has others. 0: no CTC head; None: the vocabulary's."""
        super().__init__()
        if bins < 2 ** len(settings.channels):
            raise ValueError(
                f"features.bins={bins} are too few to be halved {len(settings.channels)} times (model.channels)"
            )
        if settings.bos is not None and not {settings.bos, settings.eos} <= set(range(vocabulary)):
            wrong = f"model.bos={settings.bos} and model.eos={settings.eos}"
            raise ValueError(f"{wrong} must be tokens of 0..{vocabulary - 1}")
        self.settings, self.bins, self.vocabulary = settings, bins, vocabulary
        self.ctc_tokens = vocabulary if ctc is None else ctc
        self.bos = vocabulary if settings.bos is None else settings.bos
        self.eos = vocabulary + 1 if settings.eos is None else settings.eos
        self.shortest = max(settings.time_pooling, 2)  # frames: reflection needs a second one
        self.longest = 10 * self.shortest  # frames of a trace
        arguments = self.parts()
        with warnings.catch_warnings():
            # SpeechBrain asks torch for dropout between layers even if there is only one layer.
            warnings.filterwarnings("ignore", "dropout option adds dropout after all but last")
            self.encoder = SpeechBrainCRDNN(**arguments["encoder"])
        for norm in batch_norms(self).values():
            norm.reset_running_stats()  # SpeechBrain's parts find their sizes by processing zeros
        self.embedding = Embedding(**arguments["embedding"]) if settings.decoder_layers else None
        self.decoder = AttentionalRNNDecoder(**arguments["decoder"]) if settings.decoder_layers else None
        self.ctc_head = Linear(**arguments["ctc_head"]) if self.ctc_tokens else None
        self.attention_head = Linear(**arguments["attention_head"]) if settings.decoder_layers else None

    def parts(self) -> dict[str, dict[str, Any]]:
        """The arguments of each SpeechBrain part, by name. The export writes them as HyperPyYAML."""
        settings = self.settings
        tokens = self.vocabulary + 2 if settings.bos is None else self.vocabulary
        return {
            "encoder": {
                "input_shape": (8, 16, self.bins),
                "dropout": settings.dropout,
                "cnn_blocks": len(settings.channels),
                "cnn_channels": settings.channels,
                "cnn_kernelsize": KERNEL,
                "inter_layer_pooling_size": (2,) * len(settings.channels),
                "time_pooling": True,
                "time_pooling_size": settings.time_pooling,
                "rnn_class": RNNS[settings.rnn],
                "rnn_layers": settings.rnn_layers,
                "rnn_neurons": settings.rnn_neurons,
                "rnn_re_init": True,
                "dnn_blocks": settings.dnn_blocks,
                "dnn_neurons": settings.dnn_neurons,
            },
            "embedding": {"num_embeddings": tokens, "embedding_dim": settings.embedding},
            "decoder": {
                "rnn_type": "gru",
                "attn_type": "location",
                "enc_dim": settings.dnn_neurons,
                "input_size": settings.embedding,
                "hidden_size": settings.decoder_neurons,
                "num_layers": settings.decoder_layers,
                "attn_dim": settings.attention,
                "channels": settings.attention_channels,
                "kernel_size": settings.attention_kernel,
                "dropout": settings.dropout,
            },
            "ctc_head": {"input_size": settings.dnn_neurons, "n_neurons": self.ctc_tokens},
            "attention_head": {"input_size": settings.decoder_neurons, "n_neurons": tokens},
        }

    def forward(self, features: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """`encode`, then `ctc`: log-probabilities [B, T', V] and their lengths [B]."""
        hidden, lengths = self.encode(features, lengths)
        return self.ctc(hidden), lengths

    @staticmethod
    def output_lengths(settings: CRDNNSettings, lengths: Tensor) -> Tensor:
        """Encoder frames [B] of utterances with these numbers [B] of feature frames."""
        return lengths // settings.time_pooling

    def encode(self, features: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Features [B, T, bins] and lengths [B] in frames -> hidden states and their lengths [B].

        Hidden states are [B, T // time_pooling, dnn_neurons]. ValueError for an utterance that is too short.
        """
        shortest = shortest_of(lengths)
        if shortest < self.shortest:
            raise ValueError(f"an utterance of {shortest} frames is too short: the CRDNN needs {self.shortest}")
        encoder, left = self.encoder, self.output_lengths(self.settings, lengths)
        if self.settings.channels[0] > 1 and on_cpu(features):  # SpeechBrain squeezes one map
            return self._compiled(features, lengths), left
        with ExitStack() as hooks:
            for module in encoder["CNN"].modules():
                if isinstance(module, Conv2d):
                    hooks.callback(module.register_forward_pre_hook(Reflect(lengths)).remove)
            maps = encoder["time_pooling"](encoder["CNN"](features))
        lengths = left
        if several_clients():
            return self._dense(recurrent(encoder["RNN"].rnn, maps.flatten(2), lengths), lengths), lengths
        packed = pack_padded_sequence(maps.flatten(2), lengths.cpu(), batch_first=True, enforce_sorted=False)
        states, _ = encoder["RNN"].rnn(packed)
        # The frames of speech, without padding.
        dense = PackedSequence(encoder["DNN"](states.data[None])[0], *states[1:])
        return pad_packed_sequence(dense, batch_first=True, total_length=maps.shape[1])[0], lengths

    def _compiled(self, features: Tensor, lengths: Tensor) -> Tensor:
        """The hidden states of `encode`, computed by compiled loops."""
        from fedray.models.kernels import maps as convolutional
        from fedray.models.kernels import recurrent as kernels

        encoder, pooling = self.encoder, self.settings.time_pooling
        maps = convolutional.blocks(encoder["CNN"].values(), features, lengths, pooling)
        counts = self.output_lengths(self.settings, lengths)
        states = kernels.recurrent(encoder["RNN"].rnn, maps.flatten(2), counts)
        speech = ~padding(counts, maps.shape[1])
        frames = encoder["DNN"](states[speech][None])[0]  # without padding, which batch norm would count
        hidden: Tensor = frames.new_zeros(*speech.shape, frames.shape[1])
        hidden[speech] = frames
        return hidden

    def _dense(self, states: Tensor, lengths: Tensor) -> Tensor:
        """The encoder's last part on states [B, T, D] with padding, which batch norm does not count."""
        speech = ~padding(lengths, states.shape[1])
        for block in self.encoder["DNN"].children():
            normed = norm_of_speech(block["norm"].norm, block["linear"](states), speech)
            states = block["dropout"](block["act"](normed))
        return states.where(speech[..., None], 0.0)

    def unpadded(self, features: Tensor) -> Tensor:
        """Features [B, T, bins] of utterances of one length -> log-probabilities [B, T // time_pooling, vocabulary]."""
        return self.ctc(self.encoder(features))

    def decode(self, hidden: Tensor, lengths: Tensor, tokens_bos: Tensor) -> Tensor:
        """The inputs of the attention head after each prefix, [B, L, decoder_neurons]. ValueError without a decoder."""
        if self.decoder is None or self.embedding is None:
            raise ValueError("this CRDNN has no decoder: set model.decoder_layers")
        decoded: Tensor = self.decoder(self.embedding(tokens_bos), hidden, lengths / hidden.shape[1])[0]
        return decoded

    def steps(self, hidden: Tensor, lengths: Tensor, beam: int) -> Steps:
        """The decoder for a search with `beam` hypotheses for each utterance. ValueError without a decoder."""
        if self.decoder is None or self.embedding is None:
            raise ValueError("this CRDNN has no decoder: set model.decoder_layers")
        return RecurrentSteps(self.embedding, self.decoder, hidden, lengths, beam)
