"""What came of the models of a zoo? Families, loans, savings, and how busy it was."""
