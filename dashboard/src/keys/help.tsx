import { useState } from "react";
import { Dialog } from "../ui/dialog";
import { type KeyGroup, shownKeys, useKeys } from "./keys";

/** The button and the key that list all keys of the page. */
export function KeysHelp() {
  const [groups, setGroups] = useState<KeyGroup[] | null>(null);
  const show = () => setGroups(shownKeys());
  useKeys("Everywhere", [{ keys: "?", does: "List the keys", run: show }]);
  return (
    <>
      <button type="button" className="quiet" aria-label="Keyboard shortcuts" title="Keyboard shortcuts" onClick={show}>
        ?
      </button>
      {groups && (
        <Dialog title="Keyboard shortcuts" close={() => setGroups(null)}>
          {merged(groups).map((group) => (
            <section key={group.name}>
              <h3>{group.name}</h3>
              <dl className="keys">
                {group.keys.map((key) => (
                  <div key={key.keys}>
                    <dt>
                      {key.keys.split(" ").map((part) => (
                        <kbd key={part}>{part}</kbd>
                      ))}
                    </dt>
                    <dd>{key.does}</dd>
                  </div>
                ))}
              </dl>
            </section>
          ))}
          <p className="soft">No key does anything while you type in a field.</p>
        </Dialog>
      )}
    </>
  );
}

/** Groups of one name are one; of two keys that are the same, the one that answers. */
function merged(groups: KeyGroup[]): KeyGroup[] {
  const found = new Map<string, Map<string, KeyGroup["keys"][number]>>();
  for (const group of groups) {
    const keys = found.get(group.name) ?? new Map();
    for (const key of group.keys) keys.set(key.keys, key);
    found.set(group.name, keys);
  }
  return [...found].map(([name, keys]) => ({ name, keys: [...keys.values()] }));
}
