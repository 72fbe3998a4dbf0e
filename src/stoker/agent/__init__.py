"""What runs on a machine: claims trials, runs their stages on its slots, and commits the results."""
