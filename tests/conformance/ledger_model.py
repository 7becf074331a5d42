"""What a ledger is, written as simply as it can be: a list of everything that was ever said, looked through anew for
every answer. Slow, and plainly right; the ledgers are held to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, tzinfo
from typing import Any

from windlass.core.budget import Amount, ReservationRefused, Scope
from windlass.ports import Charge, Spending, Usage


class Model:
    def __init__(self, tz: tzinfo) -> None:
        self._tz = tz
        self._runs: list[dict[str, Any]] = []

    def reserve(self, charge: Charge, at: float, want: Amount, scopes: Sequence[Scope]) -> ReservationRefused | None:
        runs = self._of(charge)
        own = runs[-1] if runs and runs[-1]["usage"] is None else None
        for scope in scopes:
            for unit, limit, wanted in (
                ("usd", scope.limit.usd, want.usd),
                ("tokens", scope.limit.tokens, want.tokens),
            ):
                if limit is None:
                    continue
                counting = [run for run in self._runs if run is not own and _is_in(run, scope)]
                spent = sum(_counts(run, unit) for run in counting if run["usage"] is not None)
                held = sum(_counts(run, unit) for run in counting if run["usage"] is None)
                nothing_left = wanted is None and spent + held >= limit
                if nothing_left or spent + held + (wanted or 0) > limit:
                    return ReservationRefused(scope.name, unit, limit, spent, held, wanted or 0)  # type: ignore[arg-type]
        if own is not None:
            self._runs.remove(own)
        self._runs.append({"charge": charge, "began": at, "want": want, "usage": None})
        return None

    def settle(self, charge: Charge, at: float, usage: Usage) -> None:
        if not self._of(charge):
            self._runs.append({"charge": charge, "began": at, "want": Amount(), "usage": None})
        self._of(charge)[-1]["usage"] = usage

    def release(self, charge: Charge) -> None:
        self._runs = [run for run in self._runs if run["usage"] is not None or run["charge"][:3] != charge[:3]]

    def abandon(self, execution: str, at: float) -> None:
        for run in [run for run in self._runs if run["usage"] is None and run["charge"].execution == execution]:
            run["usage"] = Usage()

    def spent(self, by: str, since: float) -> list[Spending]:
        runs = [run for run in self._runs if run["began"] >= since]
        return [
            _total(heading, [run for run in runs if self._heading(by, run) == heading])
            for heading in {self._heading(by, run) for run in runs}
        ]

    def _of(self, charge: Charge) -> list[dict[str, Any]]:
        return [run for run in self._runs if run["charge"][:3] == charge[:3]]

    def _heading(self, by: str, run: dict[str, Any]) -> str:
        date = datetime.fromtimestamp(run["began"], self._tz).isoformat()
        return {"day": date[:10], "month": date[:7]}.get(by) or str(getattr(run["charge"], by))


def _is_in(run: dict[str, Any], scope: Scope) -> bool:
    charge = run["charge"]
    return (
        run["began"] >= scope.since
        and (scope.execution is None or scope.execution == charge.execution)
        and (scope.step is None or scope.step == charge.step)
    )


def _counts(run: dict[str, Any], unit: str) -> float:
    usage, reserved = run["usage"], getattr(run["want"], unit) or 0
    if usage is None:
        return float(reserved)
    if unit == "usd":
        return float(reserved if usage.usd is None else usage.usd)
    tokens = usage.tokens_in + usage.tokens_out
    return float(reserved if usage.usd is None and tokens == 0 else tokens)


def _total(heading: str, runs: list[dict[str, Any]]) -> Spending:
    ended = [run["usage"] for run in runs if run["usage"] is not None]
    running = [run["want"] for run in runs if run["usage"] is None]
    return Spending(
        heading,
        sum(usage.usd or 0.0 for usage in ended),
        sum(usage.usd is None for usage in ended),
        sum(usage.tokens_in for usage in ended),
        sum(usage.tokens_out for usage in ended),
        len(runs),
        sum(want.usd or 0.0 for want in running),
        sum(want.tokens or 0 for want in running),
    )
