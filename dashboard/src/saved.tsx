import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { Router } from "wouter";
import { memoryLocation } from "wouter/memory-location";
import { saved } from "./api/saved";
import { ExecutionPage } from "./execution/page";
import "./styles.css";

const queries = new QueryClient({ defaultOptions: { queries: { staleTime: Number.POSITIVE_INFINITY, retry: false } } });
const root = document.getElementById("app");
if (root && saved) {
  const { hook, searchHook } = memoryLocation({ path: `/executions/${saved.execution}` });
  const at = new Date(saved.saved_at * 1000).toLocaleString();
  createRoot(root).render(
    <StrictMode>
      <QueryClientProvider client={queries}>
        <Router hook={hook} searchHook={searchHook}>
          <p className="saved">
            As it was at {at}.{saved.left_out > 0 && ` ${saved.left_out} steps are here without input, output and log.`}
          </p>
          <main id="content">
            <ExecutionPage id={saved.execution} />
          </main>
        </Router>
      </QueryClientProvider>
    </StrictMode>,
  );
}
