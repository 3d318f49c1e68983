"""The zoo: the registered models, which of them are taken in, and which stay."""
