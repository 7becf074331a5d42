import { useQuery } from "@tanstack/react-query";
import { useRef, useState } from "react";
import { look, type SettingsTable } from "../api/figures";
import { useKeys } from "../keys/keys";
import { useHealth, useTitle } from "../ui/home";
import { ProblemNotice } from "../ui/problem";
import { Table } from "../ui/table";
import { Text } from "../ui/text";

/** Settings are changed in files, by hand: here they are looked at. */
export default function SettingsPage() {
  useTitle("Settings");
  const { data, error } = useQuery({ queryKey: ["settings"], queryFn: () => look<SettingsTable>("/api/settings") });
  const health = useHealth();
  const [search, setSearch] = useState("");
  const [changed, setChanged] = useState(false);
  const box = useRef<HTMLInputElement>(null);
  useKeys("Settings", [{ keys: "/", does: "Search", run: () => box.current?.focus() }]);
  const rows = (data?.settings ?? []).filter(
    (row) => row.key.includes(search.toLowerCase()) && (!changed || row.origin !== "default"),
  );
  return (
    <section className="page" aria-labelledby="settings">
      <h1 id="settings">Settings</h1>
      <p className="soft">
        State directory <Text>{data?.home}</Text>
        {health && ` · Windlass ${health.version}`}. Settings are read when the server starts. Change them in your
        config.toml, in the one of the state directory, or by a variable; secrets are not shown.
      </p>
      <div className="row-of">
        <input
          ref={box}
          type="search"
          aria-label="Search by key"
          placeholder="Search by key"
          value={search}
          onChange={(event) => setSearch(event.target.value)}
        />
        <button type="button" aria-pressed={changed} onClick={() => setChanged(!changed)}>
          Only what is set
        </button>
      </div>
      {error && <ProblemNotice error={error} />}
      {data && (
        <Table
          caption="Settings"
          rows={rows}
          id={(row) => row.key}
          empty="No setting fits."
          columns={[
            { name: "Key", of: (row) => <code>{row.key}</code> },
            { name: "Value", of: (row) => <Text>{shown(row.value)}</Text> },
            {
              name: "From",
              of: (row) => <Text className={row.origin === "default" ? "soft" : ""}>{row.origin}</Text>,
            },
          ]}
        />
      )}
    </section>
  );
}

function shown(value: unknown): string {
  if (value === null) return "not set";
  if (typeof value === "string") return value || "empty";
  if (Array.isArray(value) || typeof value === "object") return JSON.stringify(value);
  return String(value);
}
