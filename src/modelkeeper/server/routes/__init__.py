"""Which requests does the service answer? A module for each kind: queries, models, uploads, operations.

A route reads the request, asks the coordinator or the service in a thread, and replies; what is decided is
decided there.
"""
