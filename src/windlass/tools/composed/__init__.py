"""Composed tools on disk: two files each, which a person can read, edit and put under version control (G3).

`NAME.js` is the program as it is, `NAME.json` describes its use. Those of a project are in its home,
those for all projects in the user's own folder. A folder may come with a repository that was just cloned: no link in it
is followed, nothing larger than the limits is read, and a damaged tool is reported and harms nothing else.
"""

from windlass.tools.composed.shelf import FolderComposedStore

__all__ = ["FolderComposedStore"]
