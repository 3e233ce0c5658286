from __future__ import annotations

import pytest

from fedray.core.pulse import heard_by, long_work


def test_long_work_is_heard_by_whom_it_is_done_for() -> None:
    heard: list[tuple[int, int, str]] = []
    with heard_by(lambda *said: heard.append(said)), long_work("tokens", 9) as report:
        report(1)
        with heard_by(lambda *said: None), long_work("other work", 2) as other:
            other(1)
        report(2)
    with long_work("nobody listens", 1) as report:
        report(1)
    assert heard == [(1, 9, "tokens"), (2, 9, "tokens"), (9, 9, "tokens")]


def test_work_that_fails_is_not_done() -> None:
    heard: list[tuple[int, int, str]] = []
    with pytest.raises(LookupError), heard_by(lambda *said: heard.append(said)), long_work("tokens", 9) as report:
        report(1)
        raise LookupError
    assert heard == [(1, 9, "tokens")]
