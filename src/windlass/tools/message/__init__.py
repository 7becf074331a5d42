"""Messages to people and services: mail, chat, webhooks (H1). Each is sent once.

- `arguments.py` has the arguments and results of the tools, `tools.py` makes them;
- before anything leaves: `services.py` (the services of the user's settings, and allowed recipients), `content.py`
  (allowed content and attachments);
- how it leaves: `smtp.py` for mail, `chat.py` for all that apprise speaks, `webhook.py` for JSON;
- `once.py` sees to it that a message leaves once, also across a crash.

A message names a service, never an address with a secret in it; secrets stay in the environment.
"""

from windlass.ports import Tool
from windlass.tools.built_in import ToolSetup
from windlass.tools.message.tools import message_tools

__all__ = ["build_tools", "message_tools"]


def build_tools(setup: ToolSetup) -> list[Tool]:
    return message_tools(setup.settings.messages, setup.environ, setup.clock.now, book=setup.home / "messages.db")
