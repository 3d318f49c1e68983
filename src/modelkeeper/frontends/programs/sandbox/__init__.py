"""Where do programs run that anyone may have written? In a process with nothing to take."""
