export * from "./api.js";
export { app } from "./app.js";
export * from "./dom.js";
export * from "./i18n.js";
