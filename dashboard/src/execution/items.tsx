import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { api, given, type StepList } from "../api/client";
import { StepTable } from "./list";
import { type Filter, useLines } from "./use_lines";

const ALL: Filter = { text: "", status: null };

/** The items of a foreach. */
export function Items({
  execution,
  step,
  at,
  choose,
}: {
  execution: string;
  step: string;
  at: number | null;
  choose: (step: string) => void;
}) {
  const [text, setText] = useState("");
  const { data } = useQuery({
    queryKey: ["items", execution, step, at],
    queryFn: () =>
      given<StepList>(
        api.GET("/api/executions/{execution}/steps", {
          params: { path: { execution }, query: { items: step, at } },
        }),
      ),
    placeholderData: keepPreviousData,
    staleTime: Number.POSITIVE_INFINITY,
  });
  const filter = useMemo(() => (text ? { ...ALL, text } : ALL), [text]);
  const lines = useLines(data, NONE, filter, at);
  return (
    <div className="items">
      <input
        type="search"
        aria-label="Search the items"
        placeholder="Search the items"
        value={text}
        onChange={(event) => setText(event.target.value)}
      />
      <StepTable lines={lines} selected={null} choose={choose} open={NONE} toggle={() => {}} />
    </div>
  );
}

const NONE: readonly string[] = [];
