"""What FedLoRA's and FedMem's clients differ by: dialects, and domains with words of their own; the server has neither."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedray.core.parallel import serial
from fedray.data.corpora.embedded import Embedded
from fedray.data.corpora.synthesis.domains import DOMAINS, JOINING, TRAINED
from fedray.data.corpora.synthesis.sentences import DOMAIN_GRAMMARS, GRAMMARS, SLOT
from fedray.data.federated import DataSettings, divide
from fedray.data.partition import PartitionSettings, partition
from tests.data.test_embedded import synthesiser  # noqa: F401
from tests.data.test_embedded_kinds import small


def test_every_domain_has_words_of_its_own() -> None:
    commands = GRAMMARS["en"].vocabulary()
    assert len(TRAINED) == 10 and len(JOINING) == 6 and {*TRAINED, *JOINING} == set(DOMAINS)
    for domain, grammar in DOMAIN_GRAMMARS.items():
        others = commands.union(*(other.vocabulary() for name, other in DOMAIN_GRAMMARS.items() if name != domain))
        assert len(grammar.vocabulary() - others) >= 25, domain
        assert grammar.count() >= 200, domain
        assert {slot for template in grammar.templates for slot in SLOT.findall(template)} == set(grammar.slots), domain
        assert set("".join(grammar.vocabulary())) <= set("".join(commands)), f"{domain} has letters that the server never reads"


def test_clients_are_domains_in_every_split(tmp_path: Path, synthesiser: None) -> None:  # noqa: F811
    sizes = {"server_speakers": 1, "server_utterances": 4, "dev_speakers": 3, "dev_utterances": 3}
    splits = small("commands", 6, 4, domains=["crime", "sports", "news"], **sizes).read(None, 0, tmp_path, serial)
    for split in ("clients", "dev"):
        labels = splits[split].column("label")
        assert set(labels) == {"crime", "sports", "news"}
        for domain, text in zip(labels, splits[split].column("text"), strict=True):
            assert set(text.split()) <= DOMAIN_GRAMMARS[domain].vocabulary()
    assert set(splits["server"].column("label")) == {None}
    assert set(" ".join(splits["server"].column("text")).split()) <= GRAMMARS["en"].vocabulary()
    _, clients, _ = divide(splits, DataSettings())
    rows = partition(clients, PartitionSettings(by="label"), 0)
    assert sorted(rows) == ["crime", "news", "sports"] and all(len(mine) == 8 for mine in rows.values())


def test_the_server_says_the_same_whatever_the_clients_talk_about() -> None:
    def server(**options: list[str]) -> list[object]:
        return [session for split, session in Embedded(**options).sessions(0) if split == "server"]

    assert server(domains=["crime"]) == server(domains=["news", "people"]) == server(dialects=["en-029"]) == server()
    words = server(domains=["crime"], server_words=True)
    assert words == server(domains=["news", "people"], server_words=True) != server()


def test_clients_are_dialects() -> None:
    corpus = Embedded(dialects=["en-us", "en-gb-scotland"], client_speakers=4)
    sessions = [session for split, session in corpus.sessions(0) if split == "clients"]
    assert [session.speaker.dialect for session in sessions] == ["en-us", "en-gb-scotland"] * 2
    assert corpus._labels("clients", sessions[1], set()) == ["en-gb-scotland"] * len(sessions[1].texts)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"domains": ["cooking"]}, r"data\.options\.domains: choose from howto, .* not \['cooking'\]"),
        ({"dialects": ["fr"]}, r"data\.options\.dialects: choose from en-us, .* not \['fr'\]"),
        ({"dialects": ["en-us"], "domains": ["news"]}, "not for use together"),
        ({"domains": ["news"], "kind": "keywords"}, "are for commands in one language"),
        ({"domains": ["news"], "languages": ["fr"]}, "are in English, not in fr"),
        ({"server_words": True}, r"set data\.options\.domains, or remove it"),
    ],
)
def test_settings_that_make_no_sense(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Embedded(**options).check()
