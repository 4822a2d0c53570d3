import { tools } from "../app.js";
import { failure, h, mainButton, post, t } from "../page.js";

export function showLogin(problem) {
	const field = h("input", { type: "password", id: "token", autocomplete: "current-password", required: true });
	const told = failure(problem);
	const logIn = async (event) => {
		event.preventDefault();
		try {
			await post("/login", { token: field.value.trim() });
			location.reload();
		} catch (error) {
			told.textContent = error.status === 401 ? t("This access key is not valid.") : error.message;
		}
	};
	document.body.replaceChildren(h("main", h("form.alone.login", { onsubmit: logIn },
		h("h1", "Klaw"), h("label", { htmlFor: "token" }, t("Access key")), field,
		h("p.hint", t("Make one on the server with"), " ", h("code", "klaw token add local")),
		told, mainButton("Log in", null, { type: "submit" }), tools())));
	field.focus();
}
