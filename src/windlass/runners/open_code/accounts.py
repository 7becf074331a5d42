"""Whose account OpenCode calls a model with, as far as it can be seen without starting it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

from windlass.ports import account_name

__all__ = ["account"]


def account(model: str | None, env: Mapping[str, str]) -> str:
    """Provider and account of a `provider/model`; empty for a model without a provider, which OpenCode looks for."""
    provider, slash, _ = (model or "").partition("/")
    if not slash:
        return ""
    return account_name(provider, _kept(provider, env), env.get(f"{provider.upper().replace('-', '_')}_API_KEY"))


def _kept(provider: str, env: Mapping[str, str]) -> str | None:
    """The key or the account that `opencode auth login` has kept. The tokens of a login change, and name no account."""
    folder = env.get("XDG_DATA_HOME") or os.path.join(env.get("HOME", ""), ".local/share")
    try:
        with open(os.path.join(folder, "opencode", "auth.json"), encoding="utf-8") as file:
            found = json.load(file)[provider]
            kept = found.get("key") or found.get("accountId")
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None
    return kept if isinstance(kept, str) else None
