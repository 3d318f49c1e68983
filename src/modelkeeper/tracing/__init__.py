"""Tracing: from what a model did, as plain data, to its graph. No framework is known here."""
