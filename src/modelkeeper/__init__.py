"""ModelKeeper: warm starts for neural-network training."""
