"""The parts of a release as a CycloneDX document: Python packages, those within the dashboard, and QuickJS.

It is made from the locks alone, so the same commit gives the same document.
"""

from __future__ import annotations

import base64
import json
import re
import uuid
from collections.abc import Iterator
from datetime import datetime
from importlib.metadata import requires
from pathlib import Path
from typing import Any

from fetch_quickjs import Pin
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements" / "run.txt"
DASHBOARD_LOCK = ROOT / "dashboard" / "package-lock.json"
HERE = uuid.UUID("5f0d3a0e-3f0b-5d0e-9a57-77696e646c61")
"""The space of names in which the document's number is made."""


def document(version: str, made: datetime) -> dict[str, Any]:
    """The whole document; `made` is the time of the commit."""
    parts = sorted([*python_parts(), *dashboard_parts(), quickjs_part()], key=lambda part: str(part["bom-ref"]))
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(HERE, json.dumps([version, parts]))}",
        "version": 1,
        "metadata": {
            "timestamp": made.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": {
                "type": "application",
                "bom-ref": f"pkg:pypi/windlass@{version}",
                "name": "windlass",
                "version": version,
                "purl": f"pkg:pypi/windlass@{version}",
                "licenses": [{"license": {"id": "Apache-2.0"}}],
            },
        },
        "components": parts,
    }


def python_parts() -> Iterator[dict[str, Any]]:
    """Packages that are installed with Windlass: `required`, or `optional` with an extra."""
    needed = _needed_by("windlass")
    text = LOCK.read_text(encoding="utf-8")
    for name, version, hashes in re.findall(r"^([\w.-]+)==(\S+)((?:.*\\\n)*.*)", text, re.MULTILINE):
        sums = [{"alg": "SHA-256", "content": one} for one in re.findall(r"sha256:([0-9a-f]{64})", hashes)]
        part = _part("pypi", name, version, "required" if canonicalize_name(name) in needed else "optional")
        yield part | {"externalReferences": [{"type": "distribution", "url": part["purl"], "hashes": sums}]}


def dashboard_parts() -> Iterator[dict[str, Any]]:
    """Packages whose code is within the built dashboard."""
    packages = json.loads(DASHBOARD_LOCK.read_text(encoding="utf-8"))["packages"]
    for path, entry in packages.items():
        if path and not entry.get("dev"):
            kind, _, content = entry["integrity"].partition("-")
            sums = [{"alg": kind.upper().replace("SHA", "SHA-"), "content": base64.b64decode(content).hex()}]
            name = path.rpartition("node_modules/")[2]
            part = _part("npm", name, entry["version"], "required") | {"hashes": sums}
            yield part | {"licenses": [{"expression": entry["license"]}]} if "license" in entry else part


def quickjs_part() -> dict[str, Any]:
    """The program within the sandbox."""
    pin = Pin.read()
    part = _part("npm", pin.package, pin.version, "required")
    return part | {"description": "quickjs.wasm of it", "hashes": [{"alg": "SHA-256", "content": pin.sha256}]}


def _part(kind: str, name: str, version: str, scope: str) -> dict[str, Any]:
    purl = f"pkg:{kind}/{name.replace('@', '%40')}@{version}"
    return {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": version,
        "scope": scope,
        "purl": purl,
    }


def _needed_by(root: str) -> set[str]:
    """The packages that come with `pip install windlass`, on this platform."""
    found: set[str] = set()
    queue = [Requirement(root)]
    while queue:
        one = queue.pop()
        for text in requires(one.name) or []:
            wanted = Requirement(text)
            extras = [{"extra": extra} for extra in ("", *one.extras)]
            if wanted.marker is None or any(wanted.marker.evaluate(extra) for extra in extras):
                name = canonicalize_name(wanted.name)
                queue += [] if name in found else [wanted]
                found.add(name)
    return found
