// Who may use Klaw: users with their access keys and sessions, and the QR code that adds a phone.

import { app, form, get, h, inLine, later, openDialog, post, t, when } from "../forms.js";
import { Panel } from "../panel.js";

const HERE = /^(localhost|127\.|\[::1\])/;
const copyButton = (text, label) => h("button.main", () => later("copying", "copy", text), label);

class Access extends Panel {
  every = 5000;
  load = () => get("/token");

  draw({ tokens, allow_local: isOpen }) {
    const { user: me, operator } = app.me, first = !tokens.length;
    const button = (key, text, onclick) => h("button", { "data-key": key, onclick }, text);
    return [
      h("header.row", h("h1", t("Access")), h("a", { href: "#/import" }, t("Import")), operator && button("add", t(first ? "Make the first access key" : "Add a user"), () => this.make(first, first ? me : ""))),
      isOpen && h("p", t("No login needed on this computer.")),
      [...new Set([me, ...tokens.map((each) => each.user)])].map((user) => h("section", { "data-user": user }, h("h2", user), h("ul.lines", tokens.filter((each) => each.user === user).map((each) => this.row(each))),
        h("div.buttons.start", button(`phone ${user}`, t("Add a phone"), () => addPhone(user)),
          operator && !first && button(`key ${user}`, t("New access key"), () => this.make(false, user)),
          operator && user !== me && button(`remove ${user}`, t("Remove user"), () => this.revoke(user, t("Remove {user}? All keys and sessions end; chats and files stay.", { user })))))),
    ];
  }

  row({ id, user, login_of: login, operator, created_at: made, expires_at: until }) {
    return h("li.row", h("span", h("strong", t(login ? "Session" : "Access key")), " ", h("code", id),
      h("div.hint", inLine(operator && t("operator"), t("made {time}", { time: when(made) }), until && t("until {time}", { time: when(until) })))),
    h("button", { "aria-label": `${t("Revoke")}: ${user} ${id}`, onclick: () => this.revoke(id, `${t("Revoke this? Its connections are closed.")} (${user}, ${id})`) }, t("Revoke")));
  }

  revoke = (name, question) => this.change(() => post(`/token/${name}/revoke`), question);

  /** Make an access key and show it. With the first one this computer stops being served without; this browser stays logged in. */
  make(first, name) {
    const fields = [!name && { name: "name", label: t("Name"), hint: t("a-z, 0-9, _ and -"), autocomplete: "off", autocapitalize: "none" },
      !first && { name: "operator", label: t("Manages the server and sees all users' data"), value: false }].filter(Boolean);
    const dialog = openDialog(t(name ? "New access key" : "Add a user"), first && h("p", t("This key is yours. From now on every connection needs one, also on this computer; this browser stays logged in.")), form(fields, async (given) => {
      if (first) { // neither the connection nor a look at the list begins the page again before the key was read
        clearInterval(this.timer);
        app.socket.socket.onclose = null;
      }
      const made = await post("/token", { name, operator: first, ...given });
      const shown = h("code.secret", made.token);
      if (first) await post("/login", { token: made.token }).catch(() => null);
      else this.refresh();
      dialog.show(h("p", t("Access key of {user}. Copy it now: it is not stored and not shown again.", made)), h("p", shown),
        h("div.buttons", !first && h("button", () => { dialog.close(); addPhone(made.user); }, t("Add a phone")), copyButton(made.token, t("Copy"))));
      if (first) shown.closest("dialog").addEventListener("close", () => location.reload());
    }, { button: t("Make an access key") }));
  }
}

/** Show the QR code with which a phone opens the page, logged in as a user. */
function addPhone(user) {
  const show = async (dialog, address) => {
    const { url, picture, addresses, expires_at: until } = await post("/token/phone", { address, operator: app.me.operator && user === app.me.user }, { user });
    const choice = h("select", { onchange: () => dialog.load(() => show(dialog, choice.value)) }, addresses.map((value) => h("option", { value }, value)));
    dialog.show(h("p", t("Scan this with the phone's camera: Klaw opens there, logged in as {user}.", { user })), h("img.qr", { src: picture, alt: t("QR code") }),
      h("p.hint", t("It works once, until {time}.", { time: when(until) })), addresses.length > 1 && h("label.field", t("If the phone cannot open it, try another address:"), choice), h("div.buttons", copyButton(url, t("Copy the link"))));
  };
  openDialog(t("Add a phone"), (dialog) => show(dialog, HERE.test(location.hostname) ? undefined : location.origin));
}

customElements.define("klaw-access", Access);
