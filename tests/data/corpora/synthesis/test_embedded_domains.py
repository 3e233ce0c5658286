"""Clients of several dialects and domains, as in FedLoRA and FedMem; the server has neither."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from fedray.core.parallel import serial
from fedray.data.corpora.synthesis import lexicon
from fedray.data.corpora.synthesis.embedded import Embedded
from fedray.data.corpora.synthesis.sentences import SLOT
from fedray.data.corpora.synthesis.sessions import labels, sessions
from fedray.data.federation.partition import PartitionSettings, partition
from fedray.data.federation.settings import DataSettings
from fedray.data.federation.speech_data import divide
from tests.data.corpora.synthesis.test_embedded import synthesiser  # noqa: F401
from tests.data.corpora.synthesis.test_embedded_kinds import small


def test_every_domain_has_words_that_no_other_has() -> None:
    commands = lexicon.commands("en").vocabulary()
    files = {path.stem for path in (lexicon.FOLDER / "domains").iterdir()}
    assert len(lexicon.TRAINED) == 10 and len(lexicon.JOINING) == 6 and set(lexicon.DOMAINS) == files
    grammars = {name: lexicon.domain(name) for name in lexicon.DOMAINS}
    for domain, grammar in grammars.items():
        others = commands.union(*(other.vocabulary() for name, other in grammars.items() if name != domain))
        assert len(grammar.vocabulary() - others) >= 25, domain
        assert grammar.count() >= 200, domain
        assert {slot for template in grammar.templates for slot in SLOT.findall(template)} == set(grammar.slots), domain
        assert set("".join(grammar.vocabulary())) <= set("".join(commands)), (
            f"{domain} has letters that the server never reads"
        )


def test_clients_are_domains_in_every_split(tmp_path: Path, synthesiser: None) -> None:  # noqa: F811
    sizes = {"server_speakers": 1, "server_utterances": 4, "dev_speakers": 3, "dev_utterances": 3}
    splits = small("commands", 6, 4, domains=["crime", "sports", "news"], **sizes).read(None, 0, tmp_path, serial)
    for split in ("clients", "dev"):
        labels = splits[split].column("label")
        assert set(labels) == {"crime", "sports", "news"}
        for domain, text in zip(labels, splits[split].column("text"), strict=True):
            assert set(text.split()) <= lexicon.domain(domain).vocabulary()
    assert set(splits["server"].column("label")) == {None}
    assert set(" ".join(splits["server"].column("text")).split()) <= lexicon.commands("en").vocabulary()
    _, clients, _ = divide(splits, DataSettings())
    rows = partition(clients, PartitionSettings(by="label"), 0)
    assert sorted(rows) == ["crime", "news", "sports"] and all(len(mine) == 8 for mine in rows.values())


def test_the_domains_of_clients_do_not_change_the_server() -> None:
    def server(**options: list[str]) -> list[object]:
        planned = sessions(Embedded(**options), 0)  # the server comes first
        return [session for _, session in itertools.takewhile(lambda made: made[0] == "server", planned)]

    assert server(domains=["crime"]) == server(domains=["news", "people"]) == server(dialects=["en-029"]) == server()
    words = server(domains=["crime"], server_words=True)
    assert words == server(domains=["news", "people"], server_words=True) != server()


def test_clients_are_dialects() -> None:
    corpus = Embedded(dialects=["en-us", "en-gb-scotland"], client_speakers=4)
    clients = [session for split, session in sessions(corpus, 0) if split == "clients"]
    assert [session.speaker.dialect for session in clients] == ["en-us", "en-gb-scotland"] * 2
    assert labels(corpus, "clients", clients[1], set()) == ["en-gb-scotland"] * len(clients[1].texts)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"domains": ["cooking"]}, r"data\.options\.domains: choose from howto, .* not \['cooking'\]"),
        ({"dialects": ["fr"]}, r"data\.options\.dialects: choose from en-us, .* not \['fr'\]"),
        ({"dialects": ["en-us"], "domains": ["news"]}, "are for commands in one language: set one of the two"),
        ({"domains": ["news"], "kind": "keywords"}, "are for commands in one language"),
        ({"domains": ["news"], "languages": ["fr"]}, "are in English, not in fr"),
        ({"server_words": True}, r"set data\.options\.domains, or remove it"),
    ],
)
def test_impossible_settings_are_errors(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Embedded(**options).check()
