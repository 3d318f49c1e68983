"""Calibrating: a child's layers are fitted to what its parent computes, whatever framework runs them."""
