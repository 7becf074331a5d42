"""Settings with their origins, runtimes and scores of forecasts over HTTP (I4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from conftest import Project
    from server_process import Serve


def test_i4_settings_name_their_origin_and_tell_no_secret(serve: Serve, project: Project) -> None:
    user = project.user / ".config" / "windlass" / "config.toml"
    user.parent.mkdir(parents=True, exist_ok=True)
    user.write_text(
        'approval_expiry = "1h"\n[messages.services.chat]\nurl = "https://name:canary-1@chat.example.com/x"\n'
        '[messages.services.hook]\nurl = "https://chat.example.com/x?token=canary-2"\n'
        '[mcp.one]\ncommand = "one"\nenv = {ONE_KEY = "canary-3", LEVEL = "low"}\n'
        'args = ["--token", "canary-4", "--api-key=canary-5", "--proxy=http://ann:canary-6@example.com", "-v"]\n'
        '[telemetry]\nendpoint = "http://localhost:4318"\nheaders_env = {Authorization = "OTLP_AUTH"}\n'
    )
    serve().stop()  # which makes the home
    (project.home / "config.toml").write_text('[approvals]\nalways = ["shell"]\n')
    server = serve(WINDLASS_GRACE="2s")
    reply = server.api.get("/api/settings")
    assert reply.status == 200, reply.body
    assert b"canary" not in reply.body
    rows = {row["key"]: (row["value"], row["origin"]) for row in reply.json["settings"]}
    assert rows["approval_expiry"] == (3600.0, str(user))
    assert rows["grace"] == (2.0, "environment: WINDLASS_GRACE")
    assert rows["approvals.always"] == (["shell"], str(project.home / "config.toml"))
    assert rows["checkpoints"] == ("step", "default")
    assert rows["mcp.one.env.ONE_KEY"] == ("(hidden)", str(user))
    assert rows["mcp.one.env.LEVEL"] == ("low", str(user))
    assert rows["mcp.one.args"][0] == ["--token", "(hidden)", "--api-key=(hidden)", "(hidden)", "-v"]
    assert rows["telemetry.headers_env.Authorization"] == ("OTLP_AUTH", str(user))


def test_i4_runtimes_and_scores_of_forecasts_are_told(serve: Serve) -> None:
    server = serve()
    found = server.api.get("/api/runtimes").json
    assert {"claude-code", "open-code", "cli"} <= {one["name"] for one in found["runtimes"]}
    assert found["breakers"] == {}
    assert server.api.get("/api/history/forecasts").json["scores"] == []
