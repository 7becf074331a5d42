import { Advice } from "../ui/advice";
import { Text } from "../ui/text";
import { LongText } from "./value";

const BUTTONS = /: windlass (retry|skip|fork|logs) /; // the pane has buttons and tabs for those

interface Failed {
  message?: string;
  category?: string;
  where?: string;
  advice?: string[];
}

/** An error: what happened, where, and what to do about it. */
export function Failure({ step, error, choose }: { step: string; error: Failed; choose: (step: string) => void }) {
  const advice = (error.advice ?? []).filter((line) => !BUTTONS.test(line));
  const where = error.where && error.where !== step ? error.where.match(/^[^\s:/]+$/)?.[0] : undefined;
  return (
    <div className="notice bad" role="alert">
      <LongText text={error.message ?? ""} label="Error" />
      <p className="soft">
        {error.category} error
        {where && (
          <>
            {" "}
            in{" "}
            <button type="button" className="link" onClick={() => choose(where)}>
              <Text>{where}</Text>
            </button>
          </>
        )}
      </p>
      <Advice lines={advice} />
    </div>
  );
}
