"""The store in one SQLite file. `store.open_store` opens it."""
