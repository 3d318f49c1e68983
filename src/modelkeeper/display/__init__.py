"""Graphs, plans and comparisons for people: tables in a terminal, and in a notebook."""
