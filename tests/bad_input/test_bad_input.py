"""Every kind of bad input ends with a message, and docs/bad-input.md shows them all."""

from __future__ import annotations

import pytest

from fedray.data.corpora import CORPORA
from tests.bad_input.case import Case
from tests.bad_input.table import BY_NAME, CASES, PAGE, page, played


@pytest.fixture(autouse=True)
def fedray_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the corpora of other tests in this process, so that messages list only fedray's."""
    for name, reader in list(CORPORA.items()):
        if not reader.__module__.startswith("fedray."):
            monkeypatch.delitem(CORPORA, name)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_it_ends_in_words(case: Case) -> None:
    for command in (case.command, *(["data config.yaml"] if case.data else [])):
        found, text = played(case.name, command)
        assert not found.error, found.error
        assert found.status == case.status if command == case.command else found.status == 2, text
        assert "Traceback" not in text
        for piece in case.pieces:
            assert piece in text


def test_there_are_enough_and_each_has_a_name() -> None:
    assert len(CASES) >= 120 and len(BY_NAME) == len(CASES)


def test_the_page_is_up_to_date() -> None:
    assert page() == PAGE.read_text(encoding="utf-8"), "write it anew: python -m tests.bad_input"
