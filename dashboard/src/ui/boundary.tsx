import { Component, type ReactNode } from "react";
import { Notice } from "./notice";
import { Text } from "./text";

/** Holds what breaks in a page, such as a part of it that cannot be loaded after the login expired, so that the
 * navigation and the notices around it stay. */
export class PageBoundary extends Component<{ children: ReactNode }, { error: Error | null }> {
  override state: { error: Error | null } = { error: null };

  static getDerivedStateFromError(error: Error) {
    return { error };
  }

  override render() {
    if (!this.state.error) return this.props.children;
    return (
      <Notice kind="bad">
        <p>This page could not be shown.</p>
        <p className="soft">
          <Text>{this.state.error.message}</Text>
        </p>
        <button type="button" onClick={() => window.location.reload()}>
          Load it again
        </button>
      </Notice>
    );
  }
}
