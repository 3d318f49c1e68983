"""What is measured: a program a file, run as `python -m benchmarks.NAME`; results/ holds what they found."""
