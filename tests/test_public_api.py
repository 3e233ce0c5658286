"""What users may rely on changes only with an entry in CHANGELOG.md, which also names the version."""

from __future__ import annotations

import re

import fedray
from tests import public_api

CHANGELOG = (public_api.ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def unsaid(before: dict[str, str], now: dict[str, str], entries: str) -> list[str]:
    """The names that have changed or are gone, and that no code in the entries names."""
    told = set(re.findall(r"[\w-]+", " ".join(re.findall(r"`([^`]+)`", entries))))
    changed = [name for name, signature in before.items() if now.get(name) != signature]
    return [name for name in changed if re.split(r"[. ]", name)[-1] not in told]


def test_what_is_public_changes_only_with_an_entry() -> None:
    version, before = public_api.recorded()
    entries, found, _ = CHANGELOG.partition(f"\n## {version} - ")
    assert found, f"CHANGELOG.md has no section for {version}, the version of tests/public_api.txt"
    missing = unsaid(before, public_api.listed(), entries.partition("\n## Unreleased\n")[2])
    assert not missing, "say in CHANGELOG.md, under Unreleased, what has changed (CONTRIBUTING.md, Release)"


def test_a_change_without_an_entry_is_noticed() -> None:
    before = {"fedray.run": "(config)", "Config.seed": "int, 0", "fedray watch": "folders --web", "fedray.open": "(x)"}
    now = {"fedray.run": "(config, fast=True)", "Config.seed": "int, 1", "fedray.open": "(x)", "fedray.new": "()"}
    assert unsaid(before, now, "") == ["fedray.run", "Config.seed", "fedray watch"]
    assert unsaid(before, now, "- `fedray.run(fast=...)`; seed. `fedray watch` is gone.") == ["Config.seed"]


def test_the_newest_version_is_this_one() -> None:
    version, _ = public_api.recorded()
    newest = re.findall(r"^## (\d\S*) - \d{4}-\d\d-\d\d$", CHANGELOG, re.MULTILINE)[0]
    assert newest == version == fedray.__version__
    assert re.findall(r"^## (\w+)$", CHANGELOG, re.MULTILINE)[:2] == ["Unreleased"]
