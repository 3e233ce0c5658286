"""Which clients are called unusual, and why."""

from __future__ import annotations

import numpy as np

from fedray.data.analysis.unusual import unusual
from fedray.data.manifest import Manifest


def test_the_fastest_speaker_comes_first_and_a_client_of_one_utterance_not_at_all() -> None:
    """All clients but one speak five characters a second. A client's only utterance may be long by chance."""
    sizes = {f"plain{number}": (4, 2.0, 10) for number in range(5)} | {"fast": (4, 2.0, 20), "few": (1, 9.0, 45)}
    rows, clients = [], {}
    for name, (count, seconds, characters) in sizes.items():
        clients[name] = np.arange(len(rows), len(rows) + count)
        for number in range(count):
            row = {"utterance": f"{name}-{number}", "path": "/a.wav", "speaker": name, "seconds": seconds}
            rows.append(row | {"text": "a" * characters})
    found = unusual(Manifest.from_rows(rows, "test"), clients)
    assert found[0] == ("fast", "10.0 characters a second, the mean client 5.7")
    assert "few" not in dict(found) and len(found) == 6
