"""The store in one SQLite file. `open_store` is the way in."""
