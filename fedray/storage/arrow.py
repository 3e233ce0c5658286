"""The errors of pyarrow."""

import pyarrow as pa

# What pyarrow raises for a file that is damaged: OSError for Parquet's header, UnicodeDecodeError for the names in it.
DAMAGED = (pa.ArrowException, OSError, UnicodeDecodeError)
