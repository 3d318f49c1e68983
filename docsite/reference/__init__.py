"""Reference pages, each made from what it describes: one module for each kind."""
