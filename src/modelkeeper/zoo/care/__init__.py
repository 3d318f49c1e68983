"""Is all there that should be, and nothing else? Sweeping, verifying, backups, audits."""
