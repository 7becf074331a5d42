"""The files that agents work on: recorded before and after, compared, and put back (K4, K5).

- `git`: runs git, with nothing of the user's configuration, hooks or environment.
- `store`: records the files of a folder, and compares two records; `git_store` and `file_store` are its two kinds.
- `put_back`: restores files as they were recorded.

Everything here blocks: call it in a thread. Nothing here knows executions or the journal.
"""
