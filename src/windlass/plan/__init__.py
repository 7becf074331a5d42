"""What is to be done: plans, how they are read, checked, ordered and templated."""
