"""What benchmarks share: architectures, graphs, data, and ways to widen, permute and replay a model."""
