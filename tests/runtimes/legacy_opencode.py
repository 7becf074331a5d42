"""A stand-in for the older OpenCode, a Go program of which no package can be had any more.

It keeps to what is known of that program's contract: `-p PROMPT -f json -q [-c DIR]` asks a model once and prints an
indented `{"response": …}`; errors go to stderr with exit code 1; cancelled, it exits 0 without output; it names no
session, tokens or cost. The model is asked for real, at LOCAL_ENDPOINT, as the original did for self-hosted models; its
tools are not part of this.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import urllib.error
import urllib.request

HELP = """OpenCode is a powerful terminal-based AI assistant that helps with software development tasks.

Usage:
  opencode [flags]

Flags:
  -c, --cwd string             Current working directory
  -d, --debug                  Debug
  -h, --help                   help for opencode
  -f, --output-format string   Output format for non-interactive mode (text, json) (default "text")
  -p, --prompt string          Prompt to run in non-interactive mode
  -q, --quiet                  Hide spinner in non-interactive mode
  -v, --version                Version
"""


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]
        sys.stderr.write(f"Error: {message}\n{HELP}")
        sys.exit(1)


def main() -> int:
    parser = Parser(add_help=False, allow_abbrev=False)
    for flags in (("-d", "--debug"), ("-h", "--help"), ("-q", "--quiet"), ("-v", "--version")):
        parser.add_argument(*flags, action="store_true")
    for flags in (("-c", "--cwd"), ("-p", "--prompt")):
        parser.add_argument(*flags)
    parser.add_argument("-f", "--output-format", default="text", choices=("text", "json"))
    chosen = parser.parse_args()
    if chosen.help:
        print(HELP)
        return 0
    if chosen.version:
        print("v0.0.55")
        return 0
    if not chosen.prompt:
        sys.stderr.write("Error: could not open a new TTY: open /dev/tty: no such device or address\n")
        return 1
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: os._exit(0))  # a cancelled run is no error to it, and says nothing
    try:
        os.chdir(chosen.cwd or ".")
        response = ask(chosen.prompt)
    except (OSError, ValueError, LookupError) as error:
        sys.stderr.write(f"Error: failed to process prompt: {error}\n")
        return 1
    print(json.dumps({"response": response}, indent=2) if chosen.output_format == "json" else response)
    return 0


def ask(prompt: str) -> str:
    body = {"model": "local", "messages": [{"role": "user", "content": prompt}]}
    request = urllib.request.Request(
        f"{os.environ['LOCAL_ENDPOINT']}/chat/completions",
        json.dumps(body).encode(),
        {"content-type": "application/json", "authorization": "Bearer local"},
    )
    with urllib.request.urlopen(request) as answer:
        return str(json.load(answer)["choices"][0]["message"]["content"])


sys.exit(main())
