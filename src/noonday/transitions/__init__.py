"""What a fire, a settlement or an edit does to rows: decided here, once, for every store.

A driver reads what a decision may look at (`Inputs`), lets the functions of this package decide, and writes what the
`WriteSet` collected, all in one transaction. Nothing here reads or writes by itself, so a store is free to choose how it keeps
decisions apart: SQLite has one writer; PostgreSQL decides without holding a lock, and writes only if nothing it read has
changed since.
"""
