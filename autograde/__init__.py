"""What the instructor runs: building the notebooks, grading them, and testing the grader."""
