/** Told on every page when the login has expired, until somebody logged in again, in any tab of this browser. */
import { useQueryClient } from "@tanstack/react-query";
import { useEffect, useRef, useSyncExternalStore } from "react";
import { isLoggedOut, onLogin } from "../api/client";
import { Notice } from "./notice";

export function LoginNotice() {
  const loggedOut = useSyncExternalStore(onLogin, isLoggedOut);
  const queries = useQueryClient();
  const before = useRef(loggedOut);
  useEffect(() => {
    if (before.current && !loggedOut) void queries.invalidateQueries();
    before.current = loggedOut;
  }, [loggedOut, queries]);
  if (!loggedOut) return null;
  return (
    <Notice kind="bad">
      <p>
        <strong>Your login has expired.</strong> What you see may be old, and nothing can be changed.
      </p>
      <p>
        Get a new login link on the machine that runs the server: <code>windlass serve --open</code>. A server that is
        running keeps its link in <code>server.login</code> in its home. This page continues once you are logged in.
      </p>
    </Notice>
  );
}
