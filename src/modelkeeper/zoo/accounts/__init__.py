"""Who may use a zoo, and for what? Users, projects, tokens and sessions."""
