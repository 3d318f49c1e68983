"""How is the catalog's database spoken to? Its tables, connections, locks and migrations."""
