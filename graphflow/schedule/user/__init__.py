"""What users have: the schedule with its methods, its text and source, and sketches."""
