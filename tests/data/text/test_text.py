from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from fedray.data.text.error_rates import EditCounts, edit_counts
from fedray.data.text.tokenisers import Characters, SentencePiece, load_tokeniser

TEXTS = [
    "the cat sat on the mat",
    "the dog sat on the log",
    "a cat and a dog",
    "don't go there",
    "the rat ate the oat",
] * 4


def test_characters() -> None:
    tokeniser = Characters.train(["ba", "a b", "c"])
    assert tokeniser.tokens == ["<blank>", " ", "a", "b", "c"]
    assert tokeniser.size == 5 and tokeniser.blank == 0
    assert tokeniser.encode("ab c") == [2, 3, 1, 4]
    assert tokeniser.decode([0, 2, 0, 3, 1, 4, 4, 0]) == "ab cc"
    assert tokeniser.encode("") == [] and tokeniser.decode([]) == ""


def test_characters_do_not_depend_on_the_order_of_the_texts() -> None:
    assert Characters.train(TEXTS).tokens == Characters.train(reversed(TEXTS)).tokens


@pytest.mark.parametrize("text", ["a\nb", "a\tb", "a\N{NO-BREAK SPACE}b", "a\x00"])
def test_characters_that_cannot_be_tokens(text: str) -> None:
    with pytest.raises(ValueError, match=r"U\+.*normalise them"):
        Characters.train([text])


def test_no_transcripts() -> None:
    with pytest.raises(ValueError, match="no characters"):
        Characters.train(["", ""])


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_sub_words(kind: str) -> None:
    tokeniser = SentencePiece.train(TEXTS, 24, kind)
    assert tokeniser.size == len(tokeniser.tokens) == 24 and tokeniser.tokens[0] == "<blank>" and tokeniser.blank == 0
    for text in TEXTS:
        ids = tokeniser.encode(text)
        assert 0 not in ids and max(ids) < 24
        assert tokeniser.decode(ids) == text
        assert tokeniser.decode([0, *ids, 0]) == text
    assert len(tokeniser.encode("the cat")) < len("the cat")
    assert tokeniser.decode([]) == ""


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_sub_words_are_trained_to_the_same_bytes(kind: str) -> None:
    assert SentencePiece.train(TEXTS, 24, kind).proto == SentencePiece.train(iter(TEXTS), 24, kind).proto


@pytest.mark.parametrize("size", [3, 5000])
def test_an_impossible_number_of_sub_words(size: int) -> None:
    with pytest.raises(
        ValueError, match=f"{size} unigram sub-words cannot be made of 20 transcripts: .*change the size"
    ):
        SentencePiece.train(TEXTS, size)


def test_rare_and_wide_characters_stay_what_they_are() -> None:
    """They survive a round trip; SentencePiece's defaults drop the rarest, and write ， as a comma and ½ as 1/2."""
    tokeniser = SentencePiece.train([*TEXTS * 40, "你好，½"], 27)
    assert tokeniser.decode(tokeniser.encode("你好，½")) == "你好，½"


def test_an_unknown_kind_of_sub_words() -> None:
    with pytest.raises(ValueError, match="choose one of unigram, bpe"):
        SentencePiece.train(TEXTS, 24, "word")


def test_long_transcripts_are_not_dropped_from_training() -> None:
    long = " ".join(["zebra"] * 1500)  # above SentencePiece's own limit of 4192 bytes
    assert SentencePiece.train([*TEXTS, long], 26).encode("zebra")


@pytest.mark.parametrize(
    "tokeniser", [Characters.train(TEXTS), SentencePiece.train(TEXTS, 24)], ids=["characters", "sub-words"]
)
def test_unknown_characters_are_named(tokeniser) -> None:
    with pytest.raises(ValueError, match=r"'é' \(U\+00E9\), 'ñ' \(U\+00F1\) in 'the señé'.*normalise"):
        tokeniser.encode("the señé")
    assert tokeniser.decode(tokeniser.encode("the señé", "leave_out")) == "the se"


@pytest.mark.parametrize(
    "tokeniser", [Characters.train(TEXTS), SentencePiece.train(TEXTS, 24)], ids=["characters", "sub-words"]
)
def test_tokenisers_survive_files_and_pickles(tokeniser, tmp_path: Path) -> None:
    tokeniser.encode("the")
    tokeniser.save(tmp_path)
    for again in (load_tokeniser(tmp_path), pickle.loads(pickle.dumps(tokeniser))):
        assert type(again) is type(tokeniser) and again.tokens == tokeniser.tokens
        assert again.encode("the cat") == tokeniser.encode("the cat")
    assert len(list(tmp_path.iterdir())) == 1  # no temporary file is left


@pytest.mark.parametrize("end", ["", "\n"])
def test_a_list_of_tokens_written_by_hand(tmp_path: Path, end: str) -> None:
    (tmp_path / "tokens.txt").write_text(f"<blank>\n<space>\nb\na{end}")
    assert load_tokeniser(tmp_path).tokens == ["<blank>", " ", "b", "a"]


def test_files_that_hold_no_tokeniser(tmp_path: Path) -> None:
    said = (
        r"neither tokens.txt nor tokeniser.model\): write tokens.txt, .* with <blank> first and <space> for the space"
    )
    with pytest.raises(ValueError, match=said):
        load_tokeniser(tmp_path)
    (tmp_path / "tokens.txt").write_text("a\nb\n")
    with pytest.raises(ValueError, match="tokens.txt: the first line"):
        load_tokeniser(tmp_path)
    (tmp_path / "tokens.txt").write_text("<blank>\na\na\n")
    with pytest.raises(ValueError, match="tokens.txt: the token 'a' is listed twice"):
        load_tokeniser(tmp_path)
    (tmp_path / "tokens.txt").write_bytes(b"<blank>\n\xff\n")
    with pytest.raises(ValueError, match="tokens.txt:2: is not UTF-8"):
        load_tokeniser(tmp_path)
    (tmp_path / "tokens.txt").unlink()
    (tmp_path / "tokeniser.model").write_bytes(b"no model")
    with pytest.raises(ValueError, match="tokeniser.model: is not a model of SentencePiece"):
        load_tokeniser(tmp_path)


def test_edit_counts() -> None:
    references = ["a b c", "", "a b", "same text"]
    hypotheses = ["a x c d", "two words", "", "same text"]
    # one substitution and one insertion; two insertions; two deletions; none
    assert edit_counts(references, hypotheses) == [
        EditCounts(2, 3),
        EditCounts(2, 0),
        EditCounts(2, 2),
        EditCounts(0, 2),
    ]
    assert edit_counts(["abc", ""], ["abd", "x"], unit="character") == [EditCounts(1, 3), EditCounts(1, 0)]
    assert edit_counts([], []) == []


def test_edit_counts_refuses_what_cannot_be_counted() -> None:
    with pytest.raises(ValueError, match="2 references and 1 hypotheses"):
        edit_counts(["a", "b"], ["a"])
    with pytest.raises(ValueError, match="choose one of word, character"):
        edit_counts(["a"], ["a"], unit="phone")
