"""Notifications: people are told that an execution waits for them, failed, is done, or nears a limit (I8).

- `watch.py` finds the occasions in the events of a commit, and makes notes of them by the user's rules;
- `texts.py` words them: no secret, no prompt, nothing that a chat, a mail or a terminal would obey;
- `notifier.py` sends what is in the outbox, and says what could not be sent;
- `channels.py` are the ways out: the desktop, the terminal's bell, and the message services.

A note is recorded in the commit of the event that it is about, and is sent once: see `docs/notifications.md`. Only
`assembly` imports this, and only where the user's settings have rules.
"""
