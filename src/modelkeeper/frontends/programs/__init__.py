"""Programs: what a model computes, as plain data that any front end can run without the model's code."""
