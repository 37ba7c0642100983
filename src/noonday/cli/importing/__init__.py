"""Import of schedules from other programs: what becomes of each entry, and what cannot be carried over."""
