"""Warm starts: weights into a model, plain, calibrated, or those that win a race; and what was done."""
