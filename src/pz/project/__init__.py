"""What the user wrote becomes typed records, every error with file and line."""
