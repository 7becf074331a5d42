// A plugin of OpenCode that ends a turn before the call of the model that would pass `max_turns` (A3).
//
// Aborting the session from outside comes too late: OpenCode asks again within milliseconds after the last tool. The
// limit stands in the id of the prompt's message (`serve.py`), or in the environment of a process for one prompt
// (`oneshot.py`). Only finished replies count, so that a call which OpenCode repeats after an error is no turn.

const over = new Map()
const asides = ["title", "summary"]

const limitOf = (id) => {
  const told = /^msg_[0-9a-f]{12}Windl([0-9a-z]{3})/.exec(id)
  return told ? parseInt(told[1], 36) : Number(process.env.OPENCODE_WINDLASS_TURNS ?? 0)
}

const mayGoOn = (messages) => {
  const prompt = messages.findLastIndex(({ info }) => info.role === "user" && limitOf(info.id))
  if (prompt < 0) return true
  const replies = messages.slice(prompt).filter(({ info }) => info.role === "assistant" && info.finish && !info.summary)
  return replies.length < limitOf(messages[prompt].info.id)
}

export default async () => ({
  "experimental.chat.messages.transform": async (_, { messages }) => {
    if (messages.length) over.set(messages[0].info.sessionID, !mayGoOn(messages))
  },
  "chat.params": async ({ sessionID, agent }) => {
    if (over.get(sessionID) && !asides.includes(agent)) throw new Error("max_turns is reached")
  },
  event: async ({ event }) => {
    if (event.type === "session.idle") over.delete(event.properties.sessionID)
  },
})
