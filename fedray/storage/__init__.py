"""Files on paths and object stores, and caches of what is computed from them."""
