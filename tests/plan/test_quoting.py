"""Values in commands: none that the check lets pass is run as code (B5)."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from windlass.plan.quoting import unsafe_value
from windlass.plan.template import compile_value

Q = "{{ inputs.v | quote }}"

UNSAFE: list[Any] = [
    "echo {{ inputs.v }}",
    'echo "{{ inputs.v }}"',
    f"echo '{Q}'",
    f'echo "{Q}"',
    f'sh -c "echo {Q}"',
    f"sh -c 'echo {Q}'",
    f"sh -c {Q}",
    f'bash -lc "echo {Q}"',
    f'env X=1 sh -c "echo {Q}"',
    f"/bin/dash -e -c {Q}",
    f"eval echo {Q}",
    f"x={Q}; eval $x",
    f'x={Q}; sh -c "echo $x"',
    f"x={Q}; $x",
    f"X={Q} sh -c 'eval \"$X\"'",
    f'ssh host "ls {Q}"',
    f"ssh host ls {Q}",
    f"echo a | xargs sh -c {Q}",
    f"echo {Q} | xargs -I@ sh -c 'echo @'",
    f"find . -maxdepth 0 -exec sh -c {Q} \\;",
    f"cat <<EOF\n{Q}\nEOF\n",
    f"cat <<'EOF'\n{Q}\nEOF\n",
    f"sh <<EOF\n{Q}\nEOF\n",
    f"echo `echo {Q}`",
    f"echo $(( {Q} ))",
    f"echo ${{x:-{Q}}}",
    f'python3 -c "print({Q})"',
    f"python3 {Q}",
    f"awk {Q}",
    f"awk 'BEGIN {{ print \"'{Q}'\" }}'",
    f"sed -e s/a/{Q}/e",
    f"sed s/a/b/ {Q}",
    f"perl -e {Q}",
    f"perl -ne print {Q}",
    f"echo {Q} | sh",
    f"(echo {Q}; echo b) | sh -s",
    f"echo {Q} > made.sh; sh made.sh",
    f"echo {Q} | tee made.sh; . ./made.sh",
    f"trap {Q} EXIT",
    f"true # {Q}",
    f"echo \\{Q}",
    "echo {{ 'a' ~ inputs.v | quote }}{{ inputs.v ~ 'b' | quote }}",
    "echo {{ inputs.v | int(inputs.v) }}",
    '{% if inputs.v %}echo "{% else %}echo "{% endif %}' + Q,
    f"bash -c '[[ {Q} -eq 1 ]]'",
    f"env {Q}",
    f'f() {{ sh -c "$1"; }}; f {Q}',
    f'echo {Q} | while read -r x; do sh -c "$x"; done',
    f"$(echo {Q})",
    f"echo {Q} > made; chmod +x made; ./made",
    ["sh", "-c", "echo {{ inputs.v }}"],
    ["/usr/bin/env", "bash", "-lc", "echo '{{ inputs.v | quote }}'"],
    ["python3", "-c", "print('{{ inputs.v }}')"],
    ["ssh", "host", "ls {{ inputs.v | quote }}"],
    ["find", ".", "-exec", "sh", "-c", "{{ inputs.v }}", ";"],
]

SAFE: list[Any] = [
    f"echo {Q}",
    f"echo a{Q}b > out.txt",
    f'echo "$(printf %s {Q})"',
    f'x={Q}\necho "$x"',
    f"sh -c 'echo \"$1\"' sh {Q}",
    f"X={Q} sh -c 'echo \"$X\"'",
    f"echo {Q} | sed s/a/b/ | awk '{{print}}' | python3 -c 'import sys; sys.stdin.read()'",
    f"awk -v x={Q} 'BEGIN {{ print x }}'",
    f"sed s/a/b/ -- {Q} || true",
    f'"$SHELL" --version {Q}; python3 -c "print(\'$HOME\')"',
    f"echo {Q} | xargs -n1 echo",
    f"git --version; find . -name {Q}; printf '%s\\n' {Q} sh",
    f"if [ {Q} = a ]; then echo {Q}; fi",
    f'for x in {Q} b; do echo "$x"; done',
    "printf '%s' {{ inputs.v | length }} \"{{ inputs.v | int }}\"",
    "{% for one in [inputs.v] %}echo {{ one | quote }}\n{% endfor %}",
    "echo {{ (inputs.v | quote) if inputs.v else 1 }}",
    ["echo", "{{ inputs.v }}"],
    ["sh", "-c", "echo {{ inputs.v | quote }}"],
    ["sh", "-c", 'echo "$1"', "sh", "{{ inputs.v }}"],
]

PAYLOADS = [
    "$(touch ran)",
    "`touch ran`",
    "; touch ran;",
    "' ; touch ran; '",
    '" ; touch ran; "',
    "\ntouch ran\n",
    "touch ran",
    "'$(touch ran)'",
    "a[$(touch ran)]",
    "EOF\ntouch ran\n",
    "-etouch ran",
    "-cimport os; os.system('touch ran')",
    "--expression=1e touch ran",
    "touch ran|",
]


def arguments_of(run: Any) -> dict[str, Any]:
    return {"line" if isinstance(run, str) else "argv": run}


@pytest.mark.parametrize("run", UNSAFE, ids=str)
def test_b5_a_value_that_a_program_evaluates_is_warned_of(run: Any) -> None:
    found = unsafe_value(arguments_of(run))
    assert found is not None
    assert "{{ " in found.message
    assert found.hint


@pytest.mark.parametrize(
    ("run", "hint", "written_so"),
    [
        ("echo {{ inputs.v }}", "add `| quote`", f"echo {Q}"),
        ('echo "v is {{ inputs.v }}"', 'end the quotes before it: "text "{{ … | quote }}', f'echo "v is "{Q}'),
        (f"echo 'v is {Q}'", "end the quotes before it", f"echo 'v is '{Q}"),
        ("echo $(( {{ inputs.v }} + 1 ))", "{{ … | int }}", "echo $(( {{ inputs.v | int }} + 1 ))"),
        ("sh -c 'echo {{ inputs.v }}'", "pass it as an argument", f"sh -c 'echo \"$1\"' sh {Q}"),
    ],
)
def test_b5_the_first_advice_for_a_value_leads_to_a_line_without_a_warning(
    run: str, hint: str, written_so: str
) -> None:
    found = unsafe_value(arguments_of(run))
    assert found is not None
    assert hint in found.hint
    assert unsafe_value(arguments_of(written_so)) is None


def test_b5_a_sum_is_a_number_and_needs_no_quoting() -> None:
    assert unsafe_value(arguments_of('echo "sum is {{ inputs.v | sum }}"')) is None
    assert unsafe_value(arguments_of('echo {{ inputs.v | sum(start="x") }}')) is not None


@pytest.mark.parametrize("run", SAFE, ids=str)
def test_b5_nothing_that_passes_the_check_runs_a_payload(run: Any, tmp_path: Path) -> None:
    assert unsafe_value(arguments_of(run)) is None
    for payload in PAYLOADS:
        given = compile_value(run).render({"inputs": {"v": payload}})
        argv = given if isinstance(given, list) else ["sh", "-e", "-c", given]
        subprocess.run(argv, cwd=tmp_path, capture_output=True, stdin=subprocess.DEVNULL, env=os.environ, check=False)
        assert not (tmp_path / "ran").exists(), f"{payload!r} ran in {given!r}"


@pytest.mark.skipif(shutil.which("python3") is None, reason="the payloads are for programs that are here")
def test_b5_the_payloads_run_where_nothing_is_quoted(tmp_path: Path) -> None:
    """The table above would pass with payloads that never run anywhere."""
    ran = []
    for run in ("echo {{ inputs.v }}", 'echo "{{ inputs.v }}"', f'sh -c "echo {Q}"', f"echo '{Q}'"):
        for payload in PAYLOADS:
            line = compile_value(run).render({"inputs": {"v": payload}})
            subprocess.run(["sh", "-c", line], cwd=tmp_path, capture_output=True, check=False)
            if (tmp_path / "ran").exists():
                ran.append(run)
                (tmp_path / "ran").unlink()
    assert len(set(ran)) == 4
