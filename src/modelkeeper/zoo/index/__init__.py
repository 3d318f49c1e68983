"""How does a search know what the catalog knows? The search index and the columns beside it, kept in step."""
