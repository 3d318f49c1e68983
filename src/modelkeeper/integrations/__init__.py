"""Training tools that call the client where they let others in; one package for each tool."""
