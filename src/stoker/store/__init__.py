"""Where records and files of a study live: a directory, or a bucket."""
