"""The lexicons: one YAML file in lexicons/ for each language's commands and for each domain, read once per process."""

from __future__ import annotations

import functools
from pathlib import Path

import yaml

from fedray.data.corpora.synthesis.sentences import SLOT, Grammar

FOLDER = Path(__file__).parent / "lexicons"
LANGUAGES = ("en", "fr", "it", "es", "de", "ru")
# Categories of GigaSpeech, as in Du et al. (ICASSP 2024): ten domains whose clients train, and six that join later.
TRAINED = ("howto", "crime", "health", "film", "gaming", "arts", "sports", "comedy", "history", "society")
JOINING = ("news", "education", "science", "people", "entertainment", "nonprofits")
DOMAINS = TRAINED + JOINING


def commands(language: str) -> Grammar:
    """Voice commands of a language, and its 35 keywords."""
    return read(commands_file(language))


def commands_file(language: str) -> Path:
    """The file of a language's commands."""
    return FOLDER / "commands" / f"{language}.yaml"


def domain(name: str) -> Grammar:
    """English sentences of a domain. Each domain has words that neither the commands nor another domain has."""
    return read(domain_file(name))


def domain_file(name: str) -> Path:
    """The file of a domain."""
    return FOLDER / "domains" / f"{name}.yaml"


@functools.cache
def read(path: Path) -> Grammar:
    """Read the grammar of a file with the keys templates, slots and, optionally, keywords.

    Raises ValueError for other keys, for entries that are not text, and for slots that are not defined.
    """
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    if not isinstance(content, dict) or not {"templates", "slots"} <= set(content) <= {
        "templates",
        "slots",
        "keywords",
    }:
        raise ValueError(f"{path}: the keys must be templates, slots and, optionally, keywords")
    if not isinstance(content["slots"], dict):
        raise ValueError(f"{path}: slots must map names to lists of phrases")
    templates = _phrases(path, "templates", content["templates"])
    slots = {str(name): _phrases(path, f"slots.{name}", phrases) for name, phrases in content["slots"].items()}
    keywords = _phrases(path, "keywords", content["keywords"]) if "keywords" in content else ()
    for phrase in (*templates, *(phrase for phrases in slots.values() for phrase in phrases)):
        if unknown := [slot for slot in SLOT.findall(phrase) if slot not in slots]:
            raise ValueError(
                f"{path}: {phrase!r} names the slot {unknown[0]!r}, which slots does not define: define it"
            )
    return Grammar(templates, slots, keywords)


def _phrases(path: Path, key: str, values: object) -> tuple[str, ...]:
    if not isinstance(values, list) or not values:
        raise ValueError(f"{path}: {key} must be a list of phrases, not {values!r}")
    for value in values:
        if not isinstance(value, str) or not value:
            raise ValueError(f"{path}: {key}: {value!r} is not text: put it in quotation marks")
    return tuple(values)
