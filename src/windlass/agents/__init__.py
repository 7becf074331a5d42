"""The prompt of an agent (A5): its role, its skills, the project's rules, files, outputs of earlier steps, the task.

- `places` says where users keep such things, `reading` reads them within bounds and takes them apart.
- `roles`, `rolefiles`, `skills`, `rules` and `context` know one kind each.
- `catalogue` finds roles and skills once; `prompt` puts a `Brief` together; `briefing` serves the engine.

Everything found in a project is text from strangers: it is read and quoted, never run, and it cannot widen what an
agent may do.
"""

from __future__ import annotations

from windlass.agents.briefing import Briefing

__all__ = ["Briefing"]
