"""Races between starts: the rules, the race itself, and which starts there are."""
