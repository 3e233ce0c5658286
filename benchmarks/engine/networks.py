"""The networks of the workloads in bare torch and bare SpeechBrain. Imports neither fedray nor Ray."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor, nn


class CRNN(nn.Module):
    """Two convolutions over time, a GRU, its mean over time, one linear layer."""

    def __init__(
        self, width: int, hidden: int, bidirectional: bool, bins: int, classes: int, lean: bool = False
    ) -> None:
        super().__init__()
        self.lean = lean
        layers: list[nn.Module] = []
        for wide in (bins, width):
            layers += [nn.Conv1d(wide, width, 3, padding=1), nn.ReLU(), nn.MaxPool1d(2)]
        self.conv = nn.Sequential(*layers, nn.Dropout(0.1))
        self.rnn = nn.GRU(width, hidden, batch_first=True, bidirectional=bidirectional)
        self.out = nn.Linear(hidden * (1 + bidirectional), classes)

    def forward(self, features: Tensor) -> Tensor:
        """[B, T, bins] -> logits [B, classes]."""
        frames = self.conv(features.transpose(1, 2)).transpose(1, 2)
        if self.lean:
            from fedray.models.kernels.recurrent import recurrent

            lengths = torch.full((len(frames),), frames.shape[1])
            return self.out(recurrent(self.rnn, frames, lengths).mean(1))
        return self.out(self.rnn(frames)[0].mean(1))


class SpeechBrainConformer(nn.Module):
    """The encoder of SpeechBrain's recipes for Conformers, with a CTC head. `width`: of the encoder."""

    def __init__(self, bins: int, tokens: int, width: int = 64, layers: int = 2) -> None:
        from speechbrain.lobes.models.convolution import ConvolutionFrontEnd
        from speechbrain.lobes.models.transformer.TransformerASR import TransformerASR
        from speechbrain.nnet.CNN import Conv1d
        from speechbrain.nnet.linear import Linear
        from speechbrain.nnet.normalization import LayerNorm

        super().__init__()
        self.front = ConvolutionFrontEnd(
            (8, 10, bins),
            num_blocks=2,
            num_layers_per_block=1,
            out_channels=(width, width),
            kernel_sizes=(3, 3),
            strides=(2, 2),
            residuals=(False, False),
            conv_module=Conv1d,
            norm=LayerNorm,
            dropout=0.05,
        )
        self.transformer = TransformerASR(
            tgt_vocab=tokens,
            input_size=width,
            d_model=width,
            nhead=4,
            num_encoder_layers=layers,
            num_decoder_layers=0,
            d_ffn=4 * width,
            dropout=0.05,
            activation=nn.GELU,
            encoder_module="conformer",
            attention_type="RelPosMHAXL",
            positional_encoding=None,
            kernel_size=15,
            normalize_before=True,
            causal=False,
            max_length=1,
        )
        self.ctc_head = Linear(input_size=width, n_neurons=tokens)

    def forward(self, features: Tensor, shares: Tensor) -> Tensor:
        """[B, T, bins] and lengths as shares of T [B] -> log-probabilities [B, ceil(T / 4), tokens]."""
        return self.ctc_head(self.transformer.encode(self.front(features), shares)).log_softmax(-1)


class SpeechBrainCRDNN(nn.Module):
    """The encoder of SpeechBrain's recipes for CRDNNs, with a CTC head."""

    def __init__(self, bins: int, tokens: int) -> None:
        from speechbrain.lobes.models.CRDNN import CRDNN
        from speechbrain.nnet.linear import Linear
        from speechbrain.nnet.RNN import LSTM

        super().__init__()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "dropout option adds dropout after all but last")
            self.encoder = CRDNN(
                input_shape=(8, 16, bins),
                dropout=0.1,
                cnn_blocks=2,
                cnn_channels=(8, 16),
                inter_layer_pooling_size=(2, 2),
                time_pooling=True,
                time_pooling_size=4,
                rnn_class=LSTM,
                rnn_layers=1,
                rnn_neurons=128,
                rnn_re_init=True,
                dnn_blocks=1,
                dnn_neurons=128,
            )
        self.ctc_head = Linear(input_size=128, n_neurons=tokens)

    def forward(self, features: Tensor, shares: Tensor) -> Tensor:
        """[B, T, bins] -> log-probabilities [B, T // 4, tokens]."""
        return self.ctc_head(self.encoder(features)).log_softmax(-1)
