// Logging in with an access key.

import { post } from "/static/api.js";
import { tools } from "/static/app.js";
import { h } from "/static/dom.js";
import { t } from "/static/i18n.js";

export function showLogin(problem) {
  const token = h("input", { type: "password", id: "token", autocomplete: "current-password", required: true });
  const told = h("p.error", { role: "alert" }, problem);
  const form = h("form.alone.login",
    h("h1", "Klaw"),
    h("label", { htmlFor: "token" }, t("Access key")), token,
    h("p.hint", t("Make one on the server with"), " ", h("code", "klaw token add local")),
    told, h("button.main", t("Log in")), tools());
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    try {
      await post("/login", { token: token.value.trim() });
      location.reload();
    } catch (error) {
      told.textContent = error.status === 401 ? t("This access key is not valid.") : error.message;
    }
  });
  document.body.replaceChildren(h("main", form));
  token.focus();
}
