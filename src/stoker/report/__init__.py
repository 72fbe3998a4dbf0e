"""What a study came to: tables, errors, figures and a report."""
