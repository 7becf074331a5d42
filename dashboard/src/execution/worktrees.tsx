import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { api, type FolderList, given, type ListedFolder } from "../api/client";
import { ProblemNotice } from "../ui/problem";
import { type Column, Table } from "../ui/table";
import { Text } from "../ui/text";

const LOOK_EVERY = 5_000; // while the step works
const NOT_LOST = ["no work", "merged"];

interface WorktreesProps {
  execution: string;
  step: string;
  status: string;
  choose: (step: string) => void;
}

/** The folders that the agents of a step have for themselves; of a merge the branches in their order, and what became of each. */
export function Worktrees({ execution, step, status, choose }: WorktreesProps) {
  const queries = useQueryClient();
  const key = ["worktrees", execution];
  const { data, error } = useQuery({
    queryKey: [...key, status],
    queryFn: () => given<FolderList>(api.GET("/api/workspaces", { params: { query: { execution } } })),
    refetchInterval: status === "running" ? LOOK_EVERY : false,
  });
  const clean = useMutation({
    mutationFn: () => given<FolderList>(api.POST("/api/workspaces/clean", { body: { execution } })),
    onSettled: () => queries.invalidateQueries({ queryKey: key }),
  });
  if (error) return <ProblemNotice error={error} />;
  if (!data) return <p className="soft">Loading …</p>;
  const rows = data.workspaces.filter(
    (one) => one.step === step || one.step.startsWith(`${step}[`) || one.merge?.step === step,
  );
  const removable = rows.filter((one) => NOT_LOST.includes(one.work)).length;
  const kept = clean.data?.workspaces.filter((one) => one.removed === false).length ?? 0;
  return (
    <>
      <Table
        caption="Worktrees and copies"
        columns={columns(choose)}
        rows={rows}
        id={(one) => one.step}
        empty="No folder of an agent is here."
      />
      {rows.length > 0 && (
        <p>
          <button type="button" disabled={clean.isPending || removable === 0} onClick={() => clean.mutate()}>
            Remove those without unmerged work
          </button>{" "}
          {clean.data && kept > 0 && <span className="soft">{kept} kept: their work would be lost.</span>}
        </p>
      )}
      {clean.error && <ProblemNotice error={clean.error} />}
    </>
  );
}

function columns(choose: (step: string) => void): Column<ListedFolder>[] {
  return [
    {
      name: "Step",
      of: (one) => (
        <button type="button" className="link" onClick={() => choose(one.step)}>
          <Text>{one.step}</Text>
        </button>
      ),
    },
    { name: "Work", of: (one) => <Text>{one.work}</Text> },
    {
      name: "Merge",
      of: (one) =>
        one.merge ? (
          <>
            {one.merge.state}
            {one.merge.reason && (
              <>
                : <Text className="soft">{one.merge.reason}</Text>
              </>
            )}
          </>
        ) : (
          "–"
        ),
    },
    { name: "Branch or folder", of: (one) => <Text>{one.branch || one.path}</Text> },
  ];
}
