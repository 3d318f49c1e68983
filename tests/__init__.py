"""The tests: folders mirror those of the package; helpers/ is what they share."""
