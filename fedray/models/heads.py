"""The outputs that SpeechBrain's recognisers share: CTC on hidden states, and a decoder's next token."""

from __future__ import annotations

from abc import abstractmethod

from torch import Tensor, nn

LAST = ("out", "ctc_head", "attention_head")  # layers that give scores of classes or of tokens


def last_layers(model: nn.Module) -> list[str]:
    """The names of the layers that give the outputs: what the model's `head` names, or those of fedray's models."""
    children, names = dict(model.named_children()), dict.fromkeys((getattr(model, "head", None), *LAST))
    return [name for name in names if name in children]


class Heads(nn.Module):
    """A recogniser or translator with CTC, a decoder, or both. Abstract."""

    ctc_head: nn.Module | None
    attention_head: nn.Module | None

    def ctc(self, hidden: Tensor) -> Tensor:
        """Log-probabilities [B, T', V] of the CTC head from hidden states [B, T', D]."""
        assert self.ctc_head is not None, "this model has no CTC head"
        log_probs: Tensor = self.ctc_head(hidden).log_softmax(-1)
        return log_probs

    def attend(self, hidden: Tensor, lengths: Tensor, tokens_bos: Tensor) -> Tensor:
        """Log-probabilities [B, L, tokens] of the token after each prefix of tokens_bos [B, L].

        A row of tokens_bos starts with `bos`; any token may pad its end. ValueError without a decoder.
        """
        decoded = self.decode(hidden, lengths, tokens_bos)
        assert self.attention_head is not None  # else `decode` has raised
        log_probs: Tensor = self.attention_head(decoded).log_softmax(-1)
        return log_probs

    @abstractmethod
    def decode(self, hidden: Tensor, lengths: Tensor, tokens_bos: Tensor) -> Tensor:
        """The inputs of the attention head after each prefix, [B, L, D]. ValueError without a decoder."""
