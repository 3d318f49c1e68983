"""Which pages are there? A module for each, which reads the address, asks the coordinator and renders."""
