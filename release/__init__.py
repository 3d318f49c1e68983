"""What makes a release of the tree: wheels, a trial of them elsewhere, a list of what is deployed.

The programs here need Python and nothing else: whatever else they use, they install below build/.
"""
