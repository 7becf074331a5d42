import { useQuery } from "@tanstack/react-query";
import { type ArtifactList, api, given } from "../api/client";
import { size } from "../ui/format";
import { Text } from "../ui/text";

/** Files that a step made: pictures as such, the others to save. Nothing of them is ever shown as a page. */
export function Files({ execution, step, status }: { execution: string; step: string; status: string }) {
  const { data } = useQuery({
    queryKey: ["files", execution, step, status],
    queryFn: () =>
      given<ArtifactList>(
        api.GET("/api/executions/{execution}/artifacts", { params: { path: { execution }, query: { step } } }),
      ),
  });
  if (!data) return <p className="soft">Loading …</p>;
  if (data.artifacts.length === 0) return <p className="soft">It made no files.</p>;
  return (
    <ul className="unlisted files">
      {data.artifacts.map(({ path, bytes, image }) => {
        const address = `/api/executions/${execution}/artifacts/${path.split("/").map(encodeURIComponent).join("/")}`;
        const name = path.split("/").slice(1).join("/");
        return (
          <li key={path}>
            <a href={address} download>
              <Text>{name}</Text>
            </a>{" "}
            <span className="soft">{size(bytes)}</span>
            {image && <img src={address} alt={name} loading="lazy" />}
          </li>
        );
      })}
    </ul>
  );
}
