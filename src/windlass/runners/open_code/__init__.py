"""The parts of the OpenCode runner. Its map is in `windlass.runners.opencode`; nothing else imports from here."""
