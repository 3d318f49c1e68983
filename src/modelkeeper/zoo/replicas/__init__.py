"""What do several services over one zoo share, so that they act as one?"""
