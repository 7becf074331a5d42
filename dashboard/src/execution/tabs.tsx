import * as Radix from "@radix-ui/react-tabs";
import type { ReactNode } from "react";

interface Tab {
  name: string;
  part: ReactNode;
}

export function Tabs({ tabs, chosen, choose }: { tabs: Tab[]; chosen: string; choose: (name: string) => void }) {
  const name = tabs.some((tab) => tab.name === chosen) ? chosen : (tabs[0]?.name ?? "");
  return (
    <Radix.Root className="tabs" value={name} onValueChange={choose}>
      <Radix.List className="tab-names" aria-label="Parts of the step">
        {tabs.map((tab) => (
          <Radix.Trigger key={tab.name} value={tab.name} className="tab-name">
            {tab.name}
          </Radix.Trigger>
        ))}
      </Radix.List>
      {tabs.map((tab) => (
        <Radix.Content key={tab.name} value={tab.name} className="tab-part">
          {tab.name === name && tab.part}
        </Radix.Content>
      ))}
    </Radix.Root>
  );
}
