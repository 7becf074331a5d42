export { ExecutionPage } from "../execution/page";
