import { useQuery } from "@tanstack/react-query";
import { api, type FileChanges, given } from "../api/client";
import { Diff } from "../ui/diff";
import { ProblemNotice } from "../ui/problem";
import { Text } from "../ui/text";
import { SayBox } from "./say";

const LOOK_EVERY = 5_000; // while the agent works
const FEW = 3; // files whose differences are open at first

/** Files that the agent of a step changed, each with its difference. A comment on one is said to the agent. */
export function Changes({ execution, step, status }: { execution: string; step: string; status: string }) {
  const { data, error } = useQuery({
    queryKey: ["changes", execution, step, status],
    queryFn: () =>
      given<FileChanges>(
        api.GET("/api/executions/{execution}/diff", { params: { path: { execution }, query: { step } } }),
      ),
    refetchInterval: status === "running" ? LOOK_EVERY : false,
    gcTime: 10_000, // differences can be long
  });
  if (error) return <ProblemNotice error={error} />;
  if (!data) return <p className="soft">Loading …</p>;
  const files = data.changes.flatMap((work) =>
    work.files.map((file) => ({ ...file, step: work.step, root: work.root })),
  );
  const notes = [...new Set(data.changes.map((work) => work.note).filter(Boolean))];
  return (
    <>
      {data.changes.some((work) => !work.ended) && (
        <p className="soft">The agent works: these are its changes so far.</p>
      )}
      {notes.map((note) => (
        <p key={note} className="soft">
          <Text>{note}</Text>
        </p>
      ))}
      {files.length === 0 && <p className="soft">It changed no file.</p>}
      {files.map((file, place) => (
        <details key={`${file.root} ${file.step} ${place} ${file.path}`} className="changed" open={files.length <= FEW}>
          <summary>
            <Text>{file.path}</Text>{" "}
            <span className="soft">
              {file.change}
              {file.added !== null && `, +${file.added} −${file.removed ?? 0}`}
            </span>
          </summary>
          {file.patch ? <Diff text={file.patch} /> : <p className="soft">Its content is not shown.</p>}
          <SayBox execution={execution} step={file.step} about={file.path} />
        </details>
      ))}
    </>
  );
}
