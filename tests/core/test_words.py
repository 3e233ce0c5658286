"""Error messages of commands."""

from __future__ import annotations

import errno

from fedray.core.words import words


def test_a_package_that_the_dynamic_loader_refuses_leads_to_doctor() -> None:
    said = words(OSError("libtorchaudio.so: undefined symbol: torch_new"))
    assert said.startswith("libtorchaudio.so: undefined symbol: torch_new: a package does not load: `fedray doctor`")


def test_an_error_of_the_system_says_what_to_do() -> None:
    assert words(OSError(errno.ENOSPC, "No space left", "/disk/x")).startswith("/disk/x: No space left: free space")
    assert words(OSError("AWS Error NETWORK_CONNECTION")).endswith("resolve this, and try again")
