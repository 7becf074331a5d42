/** An execution saved as one file: the server's answers are in the page, and there is no server. */

interface SavedExecution {
  execution: string;
  saved_at: number;
  left_out: number;
  answers: Record<string, unknown>;
}

function read(): SavedExecution | null {
  const text = typeof document === "undefined" ? null : document.getElementById("saved")?.textContent;
  return text ? (JSON.parse(text) as SavedExecution) : null;
}

export const saved = read();

const NOT_THERE = {
  detail: "This is not in the saved file.",
  advice: ["open the execution in the dashboard: windlass serve --open"],
};

/** Answers a request from the file, whatever its page and limit are: the file has all of it at once. */
export async function savedAnswer(request: Request): Promise<Response> {
  const url = new URL(request.url);
  const named = url.searchParams.get("items") ?? url.searchParams.get("step") ?? "";
  const path = decodeURIComponent(url.pathname).replace(/^.*?(?=\/api\/)/, "");
  const found = request.method === "GET" ? saved?.answers[`${path}\n${named}`] : undefined;
  return found === undefined ? Response.json(NOT_THERE, { status: 404 }) : Response.json(found);
}
