"""`python -m fedray`: the same as `fedray`."""

import sys

from fedray.cli.commands import main

sys.exit(main())
