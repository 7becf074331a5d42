"""`worker`, `workers` and `--temporal`, as far as they need no Temporal server: their errors say what to do (J2)."""

from __future__ import annotations

from typing import Any

import pytest
from ports import KeptPort

PLAN = "steps: [{id: a, run: echo a}]"


def test_j2_a_list_of_workers_needs_a_database(windlass: Any) -> None:
    assert "share a journal in PostgreSQL" in windlass("workers", code=2).err


def test_j2_a_database_without_workers_says_so(windlass: Any, postgres: str) -> None:
    listed = windlass("workers", "--journal", postgres)
    assert (listed.out, listed.err.strip()) == ("", "No workers.")
    assert windlass("workers", "--json", "--journal", postgres).json == []


def test_j2_a_worker_needs_the_address_of_temporal(windlass: Any, postgres: str) -> None:
    assert "--temporal HOST:PORT" in windlass("worker", "--journal", postgres, code=2).err


def test_j2_a_tag_that_no_step_could_have_is_refused(windlass: Any) -> None:
    assert "is not a tag" in windlass("worker", "--tag", "a b", code=2).err


@pytest.mark.parametrize("address", ["temporal", "http://temporal:7233", "temporal:port", "a b:7233"])
def test_j2_an_address_of_temporal_that_cannot_be_one_is_refused(windlass: Any, address: str) -> None:
    assert "temporal.example.com:7233" in windlass("worker", "--temporal", address, code=2).err


def test_j2_a_plan_for_a_cluster_that_is_not_there_leaves_nothing(windlass: Any, project: Any, postgres: str) -> None:
    port = KeptPort()
    given = {"WINDLASS_JOURNAL": postgres, "WINDLASS_TEMPORAL": f"127.0.0.1:{port.number}"}
    said = windlass("run", project.plan(PLAN), code=2, **given).err
    port.close()
    assert f"the Temporal server 127.0.0.1:{port.number} cannot be reached" in said
    assert windlass("list", "--json", **given).json == []


def test_j2_a_cluster_needs_a_shared_journal(windlass: Any, project: Any) -> None:
    said = windlass("run", project.plan(PLAN), "--temporal", "127.0.0.1:1", code=2).err
    assert "share a journal in PostgreSQL" in said
