"""Coordinators: query, register, list, remove over one zoo, in this process or behind HTTP."""
