/** The layout, beside the page: a graph of thousands of steps must not hold up the page, and is given up by ending this. */
import { layOut } from "./layout";

self.onmessage = (message: MessageEvent<number[][]>) => self.postMessage(layOut(message.data));
