import { useQueryClient } from "@tanstack/react-query";
import { lazy, Suspense, useEffect, useRef } from "react";
import { Link, Route, Switch, useLocation } from "wouter";
import { ExecutionPage } from "./execution/page";
import { KeysHelp } from "./keys/help";
import { useKeys } from "./keys/keys";
import { ExecutionsPage } from "./pages/executions";
import { PageBoundary } from "./ui/boundary";
import { short, useHealth, useServerBack, useTitle } from "./ui/home";
import { LoginNotice } from "./ui/login";
import { Text } from "./ui/text";
import { ThemeSwitch } from "./ui/theme";

const ApprovalsPage = lazy(() => import("./pages/approvals"));
const BudgetPage = lazy(() => import("./pages/budget"));
const HistoryPage = lazy(() => import("./pages/history"));
const SettingsPage = lazy(() => import("./pages/settings"));
const StartPage = lazy(() => import("./pages/start"));
const ToolsPage = lazy(() => import("./pages/tools"));

const PAGES = [
  { path: "/", name: "Executions", key: "e" },
  { path: "/approvals", name: "Approvals", key: "a" },
  { path: "/history", name: "History", key: "h" },
  { path: "/tools", name: "Tools", key: "t" },
  { path: "/budget", name: "Budget", key: "b" },
  { path: "/settings", name: "Settings", key: "s" },
] as const;

export function App() {
  const [location] = useLocation();
  return (
    <>
      <a className="skip" href="#content">
        Skip to the content
      </a>
      <Top />
      <main id="content" tabIndex={-1}>
        <LoginNotice />
        <PageBoundary key={location}>
          <Suspense fallback={<p className="soft">Loading …</p>}>
            <Switch>
              <Route path="/">
                <ExecutionsPage />
              </Route>
              <Route path="/executions/:id">{(params) => <ExecutionPage id={params.id} />}</Route>
              <Route path="/start">
                <StartPage />
              </Route>
              <Route path="/history">
                <HistoryPage />
              </Route>
              <Route path="/tools">
                <ToolsPage />
              </Route>
              <Route path="/budget">
                <BudgetPage />
              </Route>
              <Route path="/settings">
                <SettingsPage />
              </Route>
              <Route path="/approvals">
                <ApprovalsPage />
              </Route>
              <Route>
                <NoPage />
              </Route>
            </Switch>
          </Suspense>
        </PageBoundary>
      </main>
    </>
  );
}

const MARGIN = 16;

function Top() {
  const [location, navigate] = useLocation();
  const health = useHealth();
  useOneHome(health?.home);
  useServerBack();
  useKeys(
    "Everywhere",
    PAGES.map((page) => ({ keys: `g ${page.key}`, does: `Go to ${page.name}`, run: () => navigate(page.path) })),
  );
  const pages = useRef<HTMLElement>(null);
  useEffect(() => {
    // On a phone the links scroll: the one of this page is to be seen.
    const link = pages.current?.querySelector<HTMLElement>("[aria-current]");
    if (link && pages.current) pages.current.scrollLeft = link.offsetLeft - pages.current.offsetLeft - MARGIN;
  }, [location]);
  return (
    <header className="top">
      <strong className="brand">Windlass</strong>
      <nav ref={pages} aria-label="Pages">
        {PAGES.map((page) => (
          <Link key={page.path} href={page.path} aria-current={isAt(page.path, location) ? "page" : undefined}>
            {page.name}
            {page.path === "/approvals" && <Open count={health?.questions ?? 0} />}
          </Link>
        ))}
      </nav>
      {health && (
        <span className="home" title={`State directory: ${health.home}`}>
          <span className="unseen">State directory: </span>
          <Text>{short(health.home)}</Text>
        </span>
      )}
      <span className="tools">
        <ThemeSwitch />
        <KeysHelp />
      </span>
    </header>
  );
}

function Open({ count }: { count: number }) {
  if (count === 0) return null;
  return (
    <span className="count">
      {count > 99 ? "99+" : count}
      <span className="unseen"> open</span>
    </span>
  );
}

function isAt(path: string, location: string): boolean {
  return path === "/" ? location === "/" || location.startsWith("/executions/") : location === path;
}

/** Begins anew when another home is served at this address: nothing of the first one may be shown as the second's. */
function useOneHome(home: string | undefined): void {
  const queries = useQueryClient();
  const first = useRef(home);
  useEffect(() => {
    if (first.current !== undefined && home !== undefined && first.current !== home) {
      queries.clear();
      window.location.assign("/");
    }
    first.current ??= home;
  }, [home, queries]);
}

function NoPage() {
  useTitle("No such page");
  return (
    <section className="page">
      <h1>There is no such page</h1>
      <p>
        <Link href="/">All executions</Link>
      </p>
    </section>
  );
}
