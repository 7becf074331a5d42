import { Link, Route, Switch, useLocation } from "wouter";
import { ExecutionPage } from "./pages/execution";
import { ExecutionsPage } from "./pages/executions";

const PAGES = [{ path: "/", name: "Executions" }];

export function App() {
  const [location] = useLocation();
  return (
    <>
      <header className="top">
        <strong>Windlass</strong>
        <nav aria-label="Pages">
          {PAGES.map((page) => (
            <Link key={page.path} href={page.path} aria-current={location === page.path ? "page" : undefined}>
              {page.name}
            </Link>
          ))}
        </nav>
      </header>
      <main>
        <Switch>
          <Route path="/">
            <ExecutionsPage />
          </Route>
          <Route path="/executions/:id">{(params) => <ExecutionPage id={params.id} />}</Route>
          <Route>
            <p>There is no such page.</p>
          </Route>
        </Switch>
      </main>
    </>
  );
}
