"""Which models are there, and what happened to them? Records and their logs, in SQL."""
